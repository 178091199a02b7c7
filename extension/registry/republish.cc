// postbox.republish: published events are queued to be published again; and taken back.
//
// What is queued is copied or changed as the owner of the outbox (sql/install/functions/
// 36_republish.sql). Meanwhile the publication is locked: its lanes stay as many, and no two
// sessions queue events of one key at a time. The lanes of a log find the rows in the table of
// parked events (worker/publisher/source/log/parked_events.h).
#include "extension/registry/republish.h"

#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/library_version.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/outbox_facts.h"
#include "extension/trust/act_as.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

struct QueueTarget {
  std::string publication;
  Oid outbox;
  Oid owner;
};

// Checks the right of the caller. Needs SPI and FixedSearchPath.
QueueTarget FindQueueTarget(const std::string& publication) {
  RequireUpdatedExtension();
  const Oid outbox = OutboxOfPublication(publication);
  const OutboxFacts facts =
      MayActOn(outbox, GetUserId()) ? ReadOutboxFacts(outbox) : ReadOwnedOutbox(outbox);
  return {publication, outbox, facts.owner};
}

// Until the end of the transaction.
void LockPublication(const std::string& publication) {
  const Registrar registrar("publication");
  Parameters name;
  name.AddText(publication);
  if (Run("SELECT FROM postbox.publication WHERE name = $1 FOR UPDATE", name) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "publication \"" + publication + "\" was dropped concurrently");
  }
}

// What one call has queued; the text is in the memory of the caller.
struct Queued {
  std::array<NullableDatum, 5> values{};  // of postbox.republished
  int64 events() const { return DatumGetInt64(values[0].value); }
};

Queued RunAsOwner(const QueueTarget& target, Parameters& parameters, MemoryContext result) {
  const ActAs owner(target.owner, TrustIn(target.owner));
  Run("SELECT r.events, r.keys, r.bytes, r.total_events, r.resume "
      "FROM postbox.republish_events($1, $2, $3, $4, $5, $6, $7, $8) r",
      parameters);
  Queued queued;
  for (int column = 1; column <= 4; ++column) {
    queued.values[column - 1] = {Int64GetDatum(Int64Column(0, column)), IsNull(0, column)};
  }
  queued.values[4].isnull = IsNull(0, 5);
  if (queued.values[4].isnull) return queued;
  const std::string resume = TextColumn(0, 5);
  Pg([&] {
    const MemoryContext before = MemoryContextSwitchTo(result);
    queued.values[4].value = CStringGetTextDatum(resume.c_str());
    MemoryContextSwitchTo(before);
  });
  return queued;
}

Queued Republish(FunctionCallInfo fcinfo, MemoryContext result) {
  const std::string name = TextArgument(fcinfo, 0, "publication");
  const bool dry_run = HasArgument(fcinfo, 5) && DatumGetBool(fcinfo->args[5].value);
  Parameters parameters =
      ArgumentsAsParameters(fcinfo, {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTARRAYOID,
                                     TEXTARRAYOID, BOOLOID, INT4OID, TEXTOID});
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const QueueTarget target = FindQueueTarget(name);
  if (!dry_run) LockPublication(target.publication);
  Queued queued = RunAsOwner(target, parameters, result);
  if (!dry_run && queued.events() > 0) RequestPublishersAtCommit(target.outbox);
  return queued;
}

}  // namespace

int64 TakeBackRepublished(const std::string& publication, Oid owner) {
  LockPublication(publication);
  Parameters name;
  name.AddText(publication);
  const ActAs rights(owner, TrustIn(owner));
  Run("SELECT postbox.remove_republished($1)", name);
  return Int64Column(0, 1);
}

}  // namespace postbox

POSTBOX_FUNCTION(republish) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    TupleDesc descriptor = nullptr;
    const bool row = Pg(
        [&] { return get_call_result_type(fcinfo, nullptr, &descriptor) == TYPEFUNC_COMPOSITE; });
    const Queued queued = Republish(fcinfo, CurrentMemoryContext);
    if (!row || descriptor->natts != static_cast<int>(queued.values.size())) {
      Throw(ERRCODE_FEATURE_NOT_SUPPORTED, "republish must return postbox.republished");
    }
    return Pg([&] {
      std::array<Datum, queued.values.size()> values{};
      std::array<bool, queued.values.size()> nulls{};
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = queued.values[i].value;
        nulls[i] = queued.values[i].isnull;
      }
      return HeapTupleGetDatum(
          heap_form_tuple(BlessTupleDesc(descriptor), values.data(), nulls.data()));
    });
  });
}

POSTBOX_FUNCTION(cancel_republish) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const std::string name = TextArgument(fcinfo, 0, "publication");
    const SpiConnection connection;
    const FixedSearchPath search_path;
    const QueueTarget target = FindQueueTarget(name);
    const int64 removed = TakeBackRepublished(name, target.owner);
    RequestPublishersAtCommit(target.outbox);
    return Int64GetDatum(removed);
  });
}
