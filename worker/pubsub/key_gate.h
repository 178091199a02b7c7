// Keeps a key in order across a nack, on a subscription with message ordering.
//
// After a nack the service delivers the message again, and after it every later message of its key.
// But messages of the key that left the service before the nack reached it still arrive here. To
// hand one of them on would apply a later event before the earlier one. Therefore the nack of a
// message closes its key: every message of the key that arrives is turned away, that is, nacked,
// too, until
//   - the message that was nacked arrives again, or
//   - a message arrives for the second time since the key was closed. Then the nacked message does
//     not come back, because the service moved it to a dead-letter topic or a seek skipped it.
//
// Pure logic, for the I/O thread. At most `max_closed` keys are closed; one more opens the key that
// was closed first.

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

  // The consumer nacked this message. If the key is closed already, its first nacked message
  // counts.
  void Close(const std::string& key, const std::string& message_id);
  // True if this message, which has just arrived, may be handed on. If not, it must be nacked.
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
  // The keys in the order in which they were closed. Some of them may be open again.
  std::deque<std::string> order_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_KEY_GATE_H_
