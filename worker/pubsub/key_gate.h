// Keeps a key in order across a nack, on a subscription with message ordering.
//
// After a nack the service delivers the message again, and after it every later one of its key. But
// messages of the key that left the service before the nack reached it are still under way here.
// Handing one of them on would apply a later event before the earlier one. So, from the nack of a
// message of a key on, every arriving message of that key is turned away (nacked too) until
//   - the message that was nacked arrives again, or
//   - a message arrives for the second time since its key was closed: the nacked one is not coming
//     back (the service dead-lettered it, or somebody sought past it), and nothing is to wait for.
// Pure logic, lives on the I/O thread. Bounded: the oldest closed key is opened when there are too
// many.

#ifndef POSTBOX_WORKER_PUBSUB_KEY_GATE_H_
#define POSTBOX_WORKER_PUBSUB_KEY_GATE_H_

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace postbox::pubsub {

class KeyGate {
 public:
  explicit KeyGate(size_t max_closed = 100000) : max_closed_(max_closed) {}

  // The consumer nacked this message. Of several messages of a key the first nacked one counts.
  void Close(const std::string& key, const std::string& message_id);
  // May this message that arrived be handed on? False: nack it.
  bool Admit(const std::string& key, const std::string& message_id);
  void Clear();

  bool closed(const std::string& key) const { return closed_.contains(key); }

 private:
  struct Closed {
    std::string waits_for;
    std::unordered_set<std::string> turned_away;
  };

  const size_t max_closed_;
  std::unordered_map<std::string, Closed> closed_;
  std::deque<std::string>
      order_;  // keys in the order of closing; may name keys that are open again
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_KEY_GATE_H_
