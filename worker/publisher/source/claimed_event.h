// An event from its claim to its settlement: the source makes it, the Publisher carries it and says
// what became of it, the source settles it.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_CLAIMED_EVENT_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_CLAIMED_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/rules/limits.h"
#include "proto/rules/trace_context.h"
#include "worker/publisher/source/unsent_event.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/publish/prefetch.h"

namespace postbox::publisher {

// An aggregate id with more bytes is no ordering key.
inline constexpr std::size_t kMaxKey = pubsub::kMaxOrderingKeyBytes;

// What the span `create` of an event of a trace says (event_spans.h).
struct EventTrace {
  pubsub::TraceContext create;
  std::string event_id;
  std::int64_t occurred_at;  // microseconds since 1970
};

// What few events have.
struct EventExtras {
  // The event must not be sent, and is kRejected from the start.
  std::optional<UnsentEvent> unsent;
  // Of one that is `traced`: the span in which it was emitted (event_spans.h).
  std::uint64_t parent_span = 0;
  // Of one that is `traced`, but was not encoded.
  std::optional<EventTrace> unsent_trace;
};

struct ClaimedEvent : pubsub::OutgoingMessage {
  std::uint64_t handle = 0;  // of a log outbox: see lane_progress_logic.h; 0: a parked event
  std::int64_t seq = 0;      // of a log outbox
  int attempts = 0;          // failed ones, before this one

  // The claimer's. `owner` keeps alive what the event refers to: the source and its topic.
  std::uint32_t place = 0;
  std::shared_ptr<void> owner;

  std::unique_ptr<EventExtras> extras;

  // In the encoding of the database: the aggregate id; of an event that its key may pass, what
  // LogKey() makes of the id.
  std::string key;
  std::string id;  // of a table outbox, or of a parked event
  // Of a table outbox: the block and the offset of the leased row.
  std::uint32_t block = 0;
  std::uint16_t offset = 0;

  bool parked = false;  // of a table outbox: it was parked, or waited behind such an event
  // Given back because the worker leaves, whatever `status` says: a failure is not counted.
  bool leaving = false;

  std::int64_t occurred_at = 0;  // microseconds since 1970; 0: it is not known

  // Null if it may be sent.
  const UnsentEvent* unsent() const {
    return extras != nullptr && extras->unsent ? &*extras->unsent : nullptr;
  }
  std::size_t bytes() const { return encoded.size(); }  // as counted for ClaimLimits
};

// The result of an event is four cache lines to read (prefetch.h).
static_assert(sizeof(ClaimedEvent) == 4 * pubsub::kCacheLine);

// Events come and go by the thousand. One that is done is kept, with the room that its texts have,
// for the next one: taking memory apart and together again would cost as much as encoding the
// message. One thread.
struct RecycleEvent {
  void operator()(ClaimedEvent* event) const noexcept;
};
using EventPointer = std::unique_ptr<ClaimedEvent, RecycleEvent>;
using Events = std::vector<EventPointer>;

EventPointer NewEvent();

// For a loop over results that is at position `at`: fetches what the loop will read of a later one.
inline void PrefetchResult(const std::vector<pubsub::OutgoingMessage*>& results, std::size_t at) {
  if (at + pubsub::kFetchFarAhead >= results.size()) return;
  const auto* later = static_cast<const ClaimedEvent*>(results[at + pubsub::kFetchFarAhead]);
  pubsub::PrefetchForRead(later);
  pubsub::PrefetchForRead(&later->handle);
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_CLAIMED_EVENT_H_
