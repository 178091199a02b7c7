#include "extension/inbox/aggregate_types.h"

#include "extension/base/act_as.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"

namespace postbox {
namespace {

// What is two is mixed, and a third type changes nothing.
constexpr size_t kMostTypes = 2;

// Empty if it is null: then nothing is known of the event's versions.
std::string_view AggregateTypeOf(const InboxEvent& event) {
  if (event.IsNull(EventField::kAggregateType)) return {};
  const text* type = Pg([&] { return DatumGetTextPP(event.Value(EventField::kAggregateType)); });
  return {VARDATA_ANY(type), static_cast<size_t>(VARSIZE_ANY_EXHDR(type))};
}

}  // namespace

void AggregateTypes::NoteApplied(int64 projection, const InboxEvent& event) {
  if (types_.size() >= kMostTypes) return;
  const std::string_view type = AggregateTypeOf(event);
  if (type.empty() || types_.contains(type)) return;
  const Oid table = PostboxRelation("projection");
  // Before ALTER EXTENSION UPDATE there is no such column.
  if (Pg([&] { return get_attnum(table, "aggregate_types") == InvalidAttrNumber; })) return;
  const ActAs registrar(RelationOwner(table));
  Parameters row;
  row.Add(INT8OID, Int64GetDatum(projection)).AddText(type);
  // Tells all sessions to read the inbox again.
  if (Run("UPDATE postbox.projection SET aggregate_types = aggregate_types || $2 WHERE id = "
          "(SELECT p.id FROM postbox.projection p WHERE p.id = $1 AND "
          "NOT $2 = ANY (p.aggregate_types) FOR UPDATE SKIP LOCKED)",
          row) > 0) {
    return;
  }
  // This session has read the inbox with an older snapshot.
  if (Run("SELECT FROM postbox.projection WHERE id = $1 AND $2 = ANY (aggregate_types)", row) > 0) {
    types_.emplace(type);
  }
}

void AggregateTypes::RequireComparable(const InboxEvent& event, const std::string& target_name,
                                       const std::string& version_column) const {
  const std::string_view type = AggregateTypeOf(event);
  const auto other = std::find_if(types_.begin(), types_.end(),
                                  [&](const std::string& one) { return one != type; });
  if (type.empty() || other == types_.end()) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "cannot tell whether event of aggregate type \"" + std::string(type) +
            "\" is older than its row in " + target_name,
        "Column \"" + version_column + "\" also has versions of aggregate type \"" + *other +
            "\", and each aggregate counts its own.",
        "Give each aggregate type a version column of its own (version_column of "
        "create_projection), or a table of its own, or let a key column take $aggregate_type.");
}

}  // namespace postbox
