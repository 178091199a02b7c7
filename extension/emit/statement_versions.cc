#include "extension/emit/statement_versions.h"

extern "C" {
#include <catalog/pg_collation.h>
#include <catalog/pg_operator.h>
#include <executor/tuptable.h>
#include <utils/datum.h>
}

namespace postbox {
namespace {

constexpr size_t kCountedTogether = 1000;
constexpr int kMaxColumns = 3;

int64 HashOf(std::string_view key) {
  return static_cast<int64>(std::hash<std::string_view>()(key));
}

}  // namespace

void StatementVersions::Sort::Begin(std::span<const Oid> types, int keys) {
  Pg([&] {
    TupleDesc columns = CreateTemplateTupleDesc(static_cast<int>(types.size()));
    AttrNumber numbers[kMaxColumns];
    Oid less[kMaxColumns];
    Oid collations[kMaxColumns];
    bool nulls_first[kMaxColumns] = {};
    for (size_t i = 0; i < types.size(); ++i) {
      const auto number = static_cast<AttrNumber>(i + 1);
      TupleDescInitEntry(columns, number, nullptr, types[i], -1, 0);
      numbers[i] = number;
      less[i] = types[i] == TEXTOID ? TextLessOperator : Int8LessOperator;
      collations[i] = types[i] == TEXTOID ? C_COLLATION_OID : InvalidOid;
    }
    state_ = tuplesort_begin_heap(columns, keys, numbers, less, collations, nulls_first, work_mem,
                                  nullptr, 0);
    row_ = MakeSingleTupleTableSlot(columns, &TTSOpsVirtual);
    found_ = MakeSingleTupleTableSlot(columns, &TTSOpsMinimalTuple);
  });
}

void StatementVersions::Sort::Put(std::span<const Datum> values) {
  Pg([&] {
    ExecClearTuple(row_);
    std::copy(values.begin(), values.end(), row_->tts_values);
    std::fill_n(row_->tts_isnull, values.size(), false);
    ExecStoreVirtualTuple(row_);
    tuplesort_puttupleslot(state_, row_);
  });
}

void StatementVersions::Sort::EndOfRows() {
  Pg([&] { tuplesort_performsort(state_); });
}

bool StatementVersions::Sort::Get(std::span<Datum> values) {
  return Pg([&] {
    if (!tuplesort_gettupleslot(state_, true, false, found_, nullptr)) return false;
    slot_getallattrs(found_);
    std::copy_n(found_->tts_values, values.size(), values.begin());
    return true;
  });
}

void StatementVersions::Sort::Close() {
  if (state_ == nullptr) return;
  Pg([&] {
    ExecDropSingleTupleTableSlot(row_);
    ExecDropSingleTupleTableSlot(found_);
    tuplesort_end(state_);
  });
  state_ = nullptr;
}

void StatementVersions::Add(Datum key) {
  if (added_ == 0) keys_.Begin(std::array<Oid, 2>{TEXTOID, INT8OID}, 2);
  keys_.Put(std::array{key, Int64GetDatum(added_++)});
}

void StatementVersions::Count(Outbox* outbox, const EmittedEvent& common, bool* are_new) {
  versions_.Begin(std::array<Oid, 3>{INT8OID, INT8OID, INT8OID}, 1);
  keys_.EndOfRows();
  const MemoryContext memory = Pg([] {
    return AllocSetContextCreate(CurrentMemoryContext, "postbox keys", ALLOCSET_DEFAULT_SIZES);
  });
  const MemoryContext before = CurrentMemoryContext;
  std::vector<Change> changes;
  std::vector<int64> places;
  std::string last;
  std::array<Datum, 2> row;
  for (bool are_more = true; are_more;) {
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    MemoryContextSwitchTo(memory);
    while (changes.size() < kCountedTogether && (are_more = keys_.Get(row))) {
      const Datum key = Pg([&] { return datumCopy(row[0], false, -1); });
      const bool is_new = *are_new && (!changes.empty() || View(key) != last);
      changes.push_back({.aggregate_id = {key, View(key)}, .is_likely_first = is_new});
      places.push_back(DatumGetInt64(row[1]));
    }
    const std::vector<int64> versions = CountVersions(outbox, common, changes);
    for (size_t i = 0; i < changes.size(); ++i) {
      if (versions[i] > 1) *are_new = false;
      const std::string_view key = changes[i].aggregate_id.view;
      versions_.Put(std::array{Int64GetDatum(places[i]), Int64GetDatum(versions[i]),
                               Int64GetDatum(HashOf(key))});
    }
    if (!changes.empty()) last = changes.back().aggregate_id.view;
    changes.clear();
    places.clear();
    MemoryContextSwitchTo(before);
    Pg([&] { MemoryContextReset(memory); });
  }
  Pg([&] { MemoryContextDelete(memory); });
  keys_.Close();
  versions_.EndOfRows();
}

int64 StatementVersions::Next(std::string_view key) {
  std::array<Datum, 3> row;
  if (!versions_.Get(row) || DatumGetInt64(row[2]) != HashOf(key)) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "the key of a changed row changed between two reads",
          "The keys of a statement are read once to count versions and again to store its events.",
          "Make the output function of the type of the key IMMUTABLE, or choose another key.");
  }
  return DatumGetInt64(row[1]);
}

void StatementVersions::Close() {
  keys_.Close();
  versions_.Close();
}

}  // namespace postbox
