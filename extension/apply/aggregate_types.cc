#include "extension/apply/aggregate_types.h"

#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

// Two types make a target mixed; a third one changes nothing.
constexpr size_t kMostTypes = 2;

// Empty if it is null: then nothing is known of the event's versions.
std::string_view AggregateTypeOf(const InboxEvent& event) {
  if (event.IsNull(EventField::kAggregateType)) return {};
  const text* type = Pg([&] { return DatumGetTextPP(event.Value(EventField::kAggregateType)); });
  return {VARDATA_ANY(type), static_cast<size_t>(VARSIZE_ANY_EXHDR(type))};
}

}  // namespace

bool AggregateTypes::Knows(const InboxEvent& event) const {
  if (types_.size() >= kMostTypes) return true;
  const std::string_view type = AggregateTypeOf(event);
  return type.empty() || types_.contains(type);
}

void AggregateTypes::NoteApplied(int64 projection, const InboxEvent& event) {
  if (Knows(event)) return;
  const std::string_view type = AggregateTypeOf(event);
  const Registrar registrar("projection");
  Parameters row;
  row.Add(INT8OID, Int64GetDatum(projection)).AddText(type);
  // Tells all sessions to read the inbox again.
  if (Run("UPDATE postbox.projection SET aggregate_types = aggregate_types || $2 WHERE id = "
          "(SELECT p.id FROM postbox.projection p WHERE p.id = $1 AND "
          "NOT $2 = ANY (p.aggregate_types) FOR UPDATE)",
          row) > 0) {
    return;
  }
  // This session has read the inbox with an older snapshot.
  if (Run("SELECT FROM postbox.projection WHERE id = $1 AND $2 = ANY (aggregate_types)", row) > 0) {
    types_.emplace(type);
  }
}

// Another type than `type` that has written to the target; empty if there is none.
std::string AggregateTypes::Other(int64 projection, std::string_view type) {
  const auto is_other = [&](const std::string& one) { return one != type; };
  auto other = std::find_if(types_.begin(), types_.end(), is_other);
  if (other != types_.end()) return *other;
  static Statement& look = *new Statement(
      "SELECT t FROM postbox.projection p JOIN postbox.projection o USING (target, version_column),"
      " unnest(o.aggregate_types) t WHERE p.id = $1 AND t <> $2",
      {INT8OID, TEXTOID});
  const text* own =
      Pg([&] { return cstring_to_text_with_len(type.data(), static_cast<int>(type.size())); });
  const uint64 rows = look.Run({Int64GetDatum(projection), PointerGetDatum(own)});
  for (std::string& read : TextColumns(rows, 1)) types_.insert(std::move(read));
  other = std::find_if(types_.begin(), types_.end(), is_other);
  return other == types_.end() ? "" : *other;
}

void AggregateTypes::RequireComparable(int64 projection, const InboxEvent& event,
                                       const std::string& target_name,
                                       const std::string& version_column) {
  const std::string_view type = AggregateTypeOf(event);
  const std::string other = type.empty() ? "" : Other(projection, type);
  if (other.empty()) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "cannot tell whether an event of aggregate type \"" + std::string(type) +
            "\" is older than its row in " + target_name,
        "Column \"" + version_column + "\" also holds versions of aggregate type \"" + other +
            "\", and each aggregate type counts separately.",
        "Give each aggregate type a separate version column (version_column of create_projection) "
        "or a separate table, or map a key column to $aggregate_type. If no two types share a row, "
        "drop the projection and create it again for one of them.");
}

}  // namespace postbox
