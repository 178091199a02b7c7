// What was emitted against what was received, event by event.
//
// Events come in the order in which they were emitted or published, with what the inbox has of
// them. An event is settled if the inbox has it, with the same fields, and it is neither rejected
// nor parked. All others are kept until they are settled, in later audits too. Their kinds:
//
//   pending           not published yet
//   parked_at_source  parked in the outbox
//   rejected, parked  by the reader
//   altered           the inbox has it with other fields
//   missing           published, and the inbox does not have it
//   skipped           the same, and a later version of its aggregate was received
//   late              the same, but it may still be on its way: nothing that was published after it
//                     has been received, or the subscription is paused or not being pulled, or it
//                     retries, or what takes its type, or an earlier event of its key, is paused
//   in_flight         nothing that was published after it has been received, but earlier events are
//                     arriving
//   unrecorded        the same, but it occurred before the publication and the inbox existed, or
//                     so long ago that the inbox has purged its id
//   discarded         given up by an operator
//   expired           its time was over before it was sent
//   hole              the same, and its effect is missing: it was parked, with others behind it
//
// What is not there may have arrived a moment later, so it is looked up again before it is
// reported. Clocks of two machines are never compared here: for `unrecorded` the caller converts.
//
// Pure logic. Memory is bounded by kMostUnsettled events.
#ifndef POSTBOX_WORKER_CLI_AUDIT_EVENT_COMPARISON_H_
#define POSTBOX_WORKER_CLI_AUDIT_EVENT_COMPARISON_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/cli/audit/audit_event.h"
#include "worker/cli/audit/tally.h"

namespace postbox::cli {

struct UnsettledEvent {
  SourceEvent event;
  std::string kind;      // `waiting`: published, and the inbox does not have it
  std::string detail;    // altered: what differs; hole: who has discarded it, and why
  bool skipped = false;  // a later version of its aggregate was received
  bool certain = false;  // an earlier audit has seen it: it is not unrecorded
};

// Events that are unrecorded.
struct UnrecordedEvents {
  int64_t count = 0;
  int64_t last = 0;  // when the last of them was emitted

  void Add(const SourceEvent& event);
};

// Events of a long backlog, which a later audit compares. Each has a place after this one.
struct BacklogLeft {
  int64_t place = INT64_MAX;
  int64_t occurred = 0;  // when the first of them occurred; 0: not known
  int64_t count = 0;     // of those that were read

  void Add(const SourceEvent& event);
};

class EventComparison {
 public:
  static constexpr size_t kMostUnsettled = 100'000;
  // Behind so many, unrecorded events are only counted, and pending ones are left out.
  static constexpr size_t kMostKept = kMostUnsettled / 2;
  // So many of the events that the reader has yet to receive are waited for.
  static constexpr size_t kMostAwaited = 1'000;

  // Of events that occurred before `recorded_from` the inbox may have no row, unless every event of
  // this audit was emitted after `emitted_from`, if that is later. By the clock of the source.
  EventComparison(int64_t recorded_from, int64_t emitted_from)
      : recorded_from_(recorded_from), emitted_from_(emitted_from) {}

  // What an earlier audit has left: its unsettled events, and the last place that was received.
  void Resume(std::vector<UnsettledEvent> unsettled, int64_t newest);

  // A page of events, each once.
  void Take(const std::vector<SourceEvent>& events, const Arrivals& arrivals);
  // The same for events that are unsettled: as they are now. Those that the source does not have
  // any more are gone.
  void TakeAgain(const std::vector<std::string>& ids, const std::vector<SourceEvent>& events,
                 const Arrivals& arrivals);
  // Whether events may be left out from now on.
  void AllowLeftOut() { may_leave_out_ = true; }
  // Leaves out the events that nothing was received after, but for the first ones.
  void LeaveOutTail();
  const BacklogLeft& left_out() const { return left_out_; }
  // From now on events that arrive show that the reader makes progress.
  void BeginWait() { newest_before_ = newest_; }
  // Says what the waiting ones are. `excuse`: why they may still be on their way; empty: they are
  // not, unless nothing has been received after them. `by_type`: the same of the events of a type,
  // and of the later ones of their aggregates.
  void Finish(const std::string& excuse, const std::map<std::string, std::string>& by_type = {});

  bool full() const { return unsettled_.size() >= kMostUnsettled; }
  std::vector<std::string> Unsettled() const;
  std::vector<std::string> Waiting() const;
  const std::map<std::string, UnsettledEvent>& unsettled() const { return unsettled_; }
  const UnrecordedEvents& unrecorded() const { return unrecorded_; }
  const Tally& tally() const { return tally_; }
  int64_t newest() const { return newest_; }

 private:
  void TakeOne(const SourceEvent& event, const Arrivals& arrivals);
  void Keep(UnsettledEvent unsettled);
  void Drop(const std::string& id);
  // Whether an event that is new is not to be kept, and what is noted of it then.
  bool OnlyNoted(const UnsettledEvent& judged);
  bool IsUnrecorded(const UnsettledEvent& waiting) const;
  // An event of the key was received.
  void NoteReceived(const SourceEvent& event);
  std::string KindOfWaiting(const UnsettledEvent& waiting, bool held, bool excused) const;

  const int64_t recorded_from_;
  const int64_t emitted_from_;
  std::map<std::string, UnsettledEvent> unsettled_;      // by id
  std::map<std::string, std::set<std::string>> by_key_;  // their ids
  std::set<std::string> counted_;                        // settled when they were looked at again
  UnrecordedEvents unrecorded_;
  BacklogLeft left_out_;
  bool may_leave_out_ = false;
  Tally tally_;
  int64_t newest_ = 0;                 // the last place of which the event was received
  int64_t newest_before_ = INT64_MAX;  // newest_ when the wait began
};

// Whether events of this kind are a difference between the two databases.
bool IsDifference(const std::string& kind);
// Whether an event of this kind has yet to take effect, or will not.
bool IsUnaccounted(const std::string& kind);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_EVENT_COMPARISON_H_
