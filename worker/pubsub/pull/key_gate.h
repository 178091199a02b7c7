// Keeps a key in order across a nack, on a subscription with message ordering.
//
// After a nack the service delivers the message again, and after it every later message of its key.
// But messages of the key that left the service before the nack reached it still arrive here. To
// hand one of them on would apply a later event before the earlier one. So a message that is given
// back closes its key, and the gate remembers, in their order, all messages of the key that are
// out: those that the consumer gave back and those that were turned away since. A message that
// arrives for a closed key is admitted only if it is the first of those that are out. Any other is
// turned away: nacked, and remembered as out. The key is open when nothing of it is out.
//
// Some messages never come back: the service moved them to a dead-letter topic, or a seek skipped
// them. So a message that was turned away, whose nack and those of all before it have reached the
// service (Returned), and that arrives twice after that, is admitted too, and those before it are
// forgotten. An arrival before that does not count: it may have been on its way since.
//
// The races, for a key with the messages m1, m2, m3, of which m1 fails:
//   - m3 is on its way when m1 is nacked. It arrives at the closed key and is turned away. The
//     service delivers m1, m2 and m3 again, in this order; each is the first of those that are out.
//   - The same, but the service handles the nack of m2 or m3 after it has delivered m1 again, and
//     sends a later m4 meanwhile. m1 is admitted. m4 is turned away, because m2 and m3 are out.
//   - The nack of m1 is lost, that of m3 is not. m3 arrives again while the service waits for the
//     lease of m1 to end. It is turned away again, because m1 has not been returned.
//   - m1 is admitted and fails again. It takes its old place, before m2 and m3. The m2 that was
//     sent with it is still unread, and arrives when the nack of m1 has been answered. It is turned
//     away: that it was turned away before does not count any more.
// A message keeps its position through all of this. Positions ascend in the order in which the
// messages arrived for the first time, which is the order of the key.
//
// There is no limit to the number of closed keys, because a key must not be opened for want of
// room. It is bounded by what fails within the time that the service holds messages back, 10
// minutes at most. A key of which nothing arrived for a day is forgotten.
//
// Pure logic, for the I/O thread; the caller passes the time.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_KEY_GATE_H_
#define POSTBOX_WORKER_PUBSUB_PULL_KEY_GATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace postbox::pubsub {

class KeyGate {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::hours kForgetAfter{24};

  // A message arrived. Returns its position if it may be handed on; else 0, and it must be nacked.
  std::uint64_t Admit(std::string_view key, std::string_view message_id, TimePoint now);
  // A message is given back. `position` is what Admit returned, or 0 if it was not admitted.
  void GiveBack(std::string_view key, std::string_view message_id, std::uint64_t position,
                TimePoint now);
  // The service does not count this message as delivered any more: it took the nack, or the lease
  // is over.
  void Returned(std::string_view key, std::string_view message_id);
  void Clear();

  bool closed(const std::string& key) const { return closed_.contains(key); }
  std::size_t closed_keys() const { return closed_.size(); }

 private:
  struct Out {
    std::string message_id;
    bool turned_away = false;
    bool returned = false;
  };
  struct Closed {
    std::map<std::uint64_t, Out> out;                          // by position; not empty
    std::unordered_map<std::string, std::uint64_t> positions;  // by message id
    TimePoint used;                                            // the last time that something came
  };

  // What is out behind `position` has not arrived since what stands there was given back.
  static void ForgetArrivalsBehind(Closed* closed, std::uint64_t position);
  void Sweep(TimePoint now);

  std::uint64_t last_position_ = 0;
  std::unordered_map<std::string, Closed> closed_;
  TimePoint swept_{};
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_KEY_GATE_H_
