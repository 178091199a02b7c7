#include "extension/apply/hole.h"

#include "extension/apply/scratch_memory.h"
#include "extension/base/subtransaction.h"

namespace postbox {
namespace {

// How many events behind a discarded one are read.
constexpr int kMostRead = 100;

// What an event of the key does to the row of a projection.
struct RowEffect {
  std::string key;
  bool replaces = false;  // all columns, or deletes it
};

// Nothing if the projection does not take the event, or its values cannot be read.
std::optional<RowEffect> EffectOn(Projection* projection, const Route* route,
                                  const InboxEvent& event) {
  if (route == nullptr || route->problem != nullptr) return std::nullopt;
  const auto step = std::find_if(route->projections.begin(), route->projections.end(),
                                 [&](const auto& each) { return each.projection == projection; });
  if (step == route->projections.end()) return std::nullopt;
  RowEffect effect;
  try {
    InSubtransaction([&] {
      PayloadJson payload(event);
      const BoundValues bound = projection->BindRow(event, &payload);
      const Datum key = projection->key().Text(bound);
      effect.key = Pg([&]() -> const char* { return TextDatumGetCString(key); });
      effect.replaces = step->deletes || bound.present.find('0') == std::string::npos;
    });
  } catch (const PostgresError& error) {
    if (error.SqlState().substr(0, 2) == "57") throw;
    return std::nullopt;
  }
  return effect;
}

bool IsReplaced(Inbox& inbox, Projection* projection, const DeadLetter& letter) {
  const std::optional<RowEffect> lost =
      EffectOn(projection, inbox.routes().Of(letter.event.event_type), letter.event);
  if (!lost) return false;
  MemoryContext scratch = MakeScratch();
  int64 after = letter.id;
  for (int read = 0; read < kMostRead; ++read) {
    const ScratchMemory memory(scratch);
    const std::optional<DeadLetter> later =
        ReadNextParked(inbox.relation(), letter.event.Value(EventField::kAggregateId), after);
    if (!later) return false;
    after = later->id;
    const std::optional<RowEffect> effect =
        EffectOn(projection, inbox.routes().Of(later->event.event_type), later->event);
    if (effect && effect->replaces && effect->key == lost->key) return true;
  }
  return false;
}

}  // namespace

std::string HoleAfter(ApplySession& session, const DeadLetter& letter) {
  const std::shared_ptr<Inbox> inbox = session.shared_inbox();
  const Route* route = inbox->routes().Of(letter.event.event_type);
  if (route == nullptr) return "";
  if (route->problem != nullptr) return "What takes the event is broken.";
  if (!route->handlers.empty()) return "A handler is called with each event of its type.";
  for (const Route::Step& step : route->projections) {
    if (IsReplaced(*inbox, step.projection, letter)) continue;
    return "No parked event behind it replaces its whole row in " + step.projection->target_name() +
           ".";
  }
  return "";
}

}  // namespace postbox
