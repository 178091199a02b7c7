#include "extension/apply/projection.h"

#include "extension/apply/set_target.h"
#include "extension/lifecycle/wakeup.h"

extern "C" {
#include <access/xact.h>
#include <common/hashfn.h>
#include <utils/datum.h>
}

namespace postbox {
namespace {

bool KeyHasType(const ProjectionColumns& columns) {
  const auto end = columns.columns.begin() + static_cast<ptrdiff_t>(columns.key_size);
  return std::any_of(columns.columns.begin(), end, [](const ProjectionColumn& column) {
    return column.source.event_field == EventField::kAggregateType;
  });
}

}  // namespace

Projection::Projection(const ProjectionConfig& config, MemoryContext context,
                       Tombstones* tombstones)
    : Projection(config, ResolveColumns(config), context, tombstones) {}

Projection::Projection(const ProjectionConfig& config, const ProjectionColumns& columns,
                       MemoryContext context, Tombstones* tombstones)
    : id_(config.id),
      deletes_(!config.delete_types.empty()),
      version_column_(columns.version().name),
      key_has_type_(KeyHasType(columns)),
      key_(columns, context),
      binder_(config.id, columns, context),
      rows_(config.target, columns),
      tombstones_(tombstones) {
  if (TakesSets(config.target, columns)) set_ = std::make_unique<RowSet>(columns);
}

Outcome Projection::Apply(const InboxEvent& event, PayloadJson* payload, bool deletes) {
  BoundValues bound = binder_.BindKey(event, payload);
  const Outcome outcome = deletes ? Delete(event, bound) : Upsert(event, payload, &bound);
  return NotedOf(event, bound, outcome);
}

uint32 Projection::HashOf(const BoundValues& key) { return HashOf(key_.View(key)); }

uint32 Projection::HashOf(std::string_view key_text) const {
  return hash_combine(target(), hash_bytes(reinterpret_cast<const unsigned char*>(key_text.data()),
                                           static_cast<int>(key_text.size())));
}

Outcome Projection::NotedOf(const InboxEvent& event, const BoundValues& key, Outcome outcome) {
  return Noted(event, outcome == Outcome::kApplied ? HashOf(key) : 0, outcome);
}

Outcome Projection::Noted(const InboxEvent& event, uint32 row, Outcome outcome) {
  if (outcome == Outcome::kApplied) NotifyAppliedAtCommit(row);
  if (key_has_type_) return outcome;
  if (outcome == Outcome::kApplied) {
    types_->NoteApplied(id_, event);
  } else {
    types_->RequireComparable(id_, event, target_name(), version_column_);
  }
  return outcome;
}

RowDifference Projection::Compare(const InboxEvent& event, PayloadJson* payload, bool deletes) {
  if (!deletes) return rows_.Compare(binder_.BindAll(event, payload), event.version());
  RowDifference found;
  if (rows_.FindStored(binder_.BindKey(event, payload), &found.stored)) {
    found.problem = found.stored > event.version() ? "newer" : "present";
  }
  return found;
}

bool Projection::TakesSetWith(const InboxEvent& event) const {
  return set_ != nullptr && !keeps_tombstones_ && (key_has_type_ || types_->Knows(event));
}

BoundValues Projection::BindRow(const InboxEvent& event, PayloadJson* payload) {
  BoundValues bound = binder_.BindKey(event, payload);
  binder_.BindRest(event, payload, &bound);
  return bound;
}

Outcome Projection::WriteRow(const InboxEvent& event, const BoundValues& bound) {
  return NotedOf(event, bound,
                 rows_.Write(bound, event.version()) ? Outcome::kApplied : Outcome::kStale);
}

std::vector<bool> Projection::WriteSet(std::span<const BoundValues* const> rows) {
  const uint64 count = set_->Write(rows);
  std::vector<bool> written(rows.size(), count == rows.size());
  uint64 next = count == rows.size() ? count : 0;
  for (size_t i = 0; i < rows.size() && next < count; ++i) {
    const Datum stored = key_.Text(set_->WrittenKey(next));
    const Datum key = key_.Text(*rows[i]);
    written[i] = Pg([&] { return datum_image_eq(stored, key, false, -1); });
    if (written[i]) ++next;
  }
  FreeRows();
  if (next == count) return written;
  Throw(ERRCODE_INTERNAL_ERROR, "rows of " + target_name() + " have other keys than those written");
}

Outcome Projection::Upsert(const InboxEvent& event, PayloadJson* payload, BoundValues* values) {
  BoundValues& bound = *values;
  // Before anything else, so that an event that comes too late is not rejected for its content.
  int64 deleted_at = keeps_tombstones_ ? tombstones_->Find(target(), key_.Text(bound)) : 0;
  if (keeps_tombstones_ && deleted_at >= event.version()) return Outcome::kStale;
  binder_.BindRest(event, payload, values);
  if (!rows_.Write(bound, event.version())) return Outcome::kStale;
  if (!keeps_tombstones_) return Outcome::kApplied;

  const Datum key = key_.Text(bound);
  deleted_at = std::max(deleted_at, tombstones_->FindCurrent(target(), key));
  if (deleted_at >= event.version()) {
    if (!rows_.DeleteAny(bound)) {
      // A trigger keeps it. The next attempt finds the tombstone first.
      Throw(ERRCODE_T_R_SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent delete",
            "The key of the row in " + target_name() + " was deleted while it was written.",
            "The transaction might succeed if retried.");
    }
    return Outcome::kStale;
  }
  if (deleted_at > 0) tombstones_->Remove(target(), key);
  return Outcome::kApplied;
}

// D3 and D4 of projection.h.
Outcome Projection::DeleteUnseen(const InboxEvent& event, const BoundValues& bound, Datum key) {
  if (!tombstones_->Raise(target(), key, event.version())) return Outcome::kStale;
  int64 stored = 0;
  if (!rows_.FindAny(bound, &stored)) return Outcome::kApplied;
  const bool older = stored < event.version();
  if (older && rows_.DeleteOlder(bound)) {
    return Outcome::kApplied;
  }
  if (IsolationUsesXactSnapshot() && !rows_.FindStored(bound, &stored) &&
      rows_.FindStoredNow(bound, &stored)) {
    Throw(ERRCODE_T_R_SERIALIZATION_FAILURE, "could not serialize access due to concurrent update",
          "The row to delete from " + target_name() + " was committed after the transaction began.",
          "The transaction might succeed if retried.");
  }
  if (older) {
    if (!rows_.FindStored(bound, &stored)) rows_.ThrowHidden();
    if (stored < event.version()) rows_.ThrowKept(stored);
  }
  tombstones_->Remove(target(), key);
  return older ? Outcome::kApplied : Outcome::kStale;
}

Outcome Projection::Delete(const InboxEvent& event, const BoundValues& bound) {
  if (rows_.is_shadow()) {
    return rows_.MarkDeleted(bound, event.version()) ? Outcome::kApplied : Outcome::kStale;
  }
  const Datum key = key_.Text(bound);
  int64 stored = 0;
  // A trigger that keeps the row moves its version on: then it was not as new before.
  const bool older =
      rows_.may_keep_deleted() && rows_.FindStored(bound, &stored) && stored < event.version();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (rows_.DeleteOlder(bound)) {
      tombstones_->Raise(target(), key, event.version());
      return Outcome::kApplied;
    }
    if (!rows_.FindStored(bound, &stored)) return DeleteUnseen(event, bound, key);
    if (stored >= event.version()) return older ? Outcome::kApplied : Outcome::kStale;
  }
  rows_.ThrowKept(stored);
}

}  // namespace postbox
