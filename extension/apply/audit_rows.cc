// postbox.audit_rows: what differs between events and the rows of the projections that take them.
//
// The values of an event are read by the code that reads them when the event is applied, as the
// owner of the inbox and with the same settings. Nothing is written: it also runs in a read-only
// transaction and on a standby. An event that cannot be read, or whose projection is broken, is
// `unchecked`.
//
// A caller that may ask what a row differs in can find out what is in it. So only the owner of the
// inbox and operators may.
#include "extension/apply/inbox_cache.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/registry/inbox_registration.h"
#include "extension/rules/sqlstate_class.h"
#include "extension/trust/act_as.h"
#include "extension/trust/effect_settings.h"
#include "extension/trust/operator_role.h"

namespace postbox {
namespace {

struct ComparedRow {
  int32 number;
  std::string target;
  RowDifference difference;
};

void RequireComparer(Oid inbox) {
  const Oid owner = RelationOwner(inbox);
  const bool owns = Pg([&] { return has_privs_of_role(GetUserId(), owner); });
  if (owns || IsOperator(GetUserId())) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
        "permission denied to compare the rows of inbox " + RelationName(inbox),
        "Only the owner of the inbox and operators compare the rows of its projections.",
        "Grant membership in the role of the owner, or in postbox_operator.");
}

std::vector<Datum> EventsOf(Datum array) {
  Datum* values = nullptr;
  bool* nulls = nullptr;
  int count = 0;
  Pg([&] {
    ArrayType* events = DatumGetArrayTypeP(array);
    deconstruct_array(events, ARR_ELEMTYPE(events), -1, false, TYPALIGN_DOUBLE, &values, &nulls,
                      &count);
  });
  for (int i = 0; i < count; ++i) {
    if (nulls[i]) Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "events may not contain null");
  }
  return {values, values + count};
}

RowDifference CompareStep(const Route::Step& step, const InboxEvent& event) {
  RowDifference found;
  try {
    InSubtransaction([&] {
      PayloadJson payload(event);
      found = step.projection->Compare(event, &payload, step.deletes);
    });
  } catch (const PostgresError& error) {
    if (IsTransientSqlstate(error.SqlState())) throw;
    found.problem = "unchecked";
    found.details = {error.message};
  }
  return found;
}

void CompareEvent(const Inbox& inbox, const InboxEvent& event, int32 number,
                  std::vector<ComparedRow>* compared) {
  if (event.IsNull(EventField::kEventType)) return;
  const Route* route = inbox.routes().Of(event.event_type);
  if (route == nullptr) return;
  if (route->problem != nullptr) {
    compared->push_back({number, "", {"unchecked", 0, {route->problem->message}}});
    return;
  }
  for (const Route::Step& step : route->projections) {
    RowDifference found = CompareStep(step, event);
    if (found.problem == nullptr) continue;
    compared->push_back({number, step.projection->target_name(), std::move(found)});
  }
}

std::vector<ComparedRow> CompareRows(Oid relation, const std::vector<Datum>& events) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  PinEffects(TextSearchConfig());
  const Oid owner = RelationOwner(relation);
  const ActAs act_as(owner, TrustIn(owner));
  const std::shared_ptr<Inbox> inbox = Inbox::Find(relation, AccessShareLock);
  inbox->routes().CheckRights();
  const MemoryContext scratch = Pg([] {
    return AllocSetContextCreate(CurrentMemoryContext, "postbox compared event",
                                 ALLOCSET_DEFAULT_SIZES);
  });
  std::vector<ComparedRow> compared;
  for (size_t i = 0; i < events.size(); ++i) {
    const MemoryContext outer = MemoryContextSwitchTo(scratch);
    const InboxEvent event = Pg([&] { return EventOfComposite(events[i]); });
    CompareEvent(*inbox, event, static_cast<int32>(i), &compared);
    MemoryContextSwitchTo(outer);
    MemoryContextReset(scratch);
  }
  return compared;
}

void ReturnCompared(FunctionCallInfo fcinfo, const std::vector<ComparedRow>& compared) {
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  for (const ComparedRow& row : compared) {
    std::array<Datum, 5> values = {
        Int32GetDatum(row.number), TextValue(row.target), TextValue(row.difference.problem),
        Int64GetDatum(row.difference.stored), TextArrayValue(row.difference.details)};
    std::array<bool, 5> nulls = {false, row.target.empty(), false, row.difference.stored == 0,
                                 false};
    Pg([&] {
      tuplestore_putvalues(result->setResult, result->setDesc, values.data(), nulls.data());
    });
  }
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(audit_rows) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const Datum events = Argument(fcinfo, 1, "events");
    if (RelationName(relation).empty()) ThrowNoInbox(relation);
    RequireComparer(relation);
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    ReturnCompared(fcinfo, CompareRows(relation, EventsOf(events)));
    return Datum{0};
  });
}
