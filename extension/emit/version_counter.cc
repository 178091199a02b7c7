#include "extension/emit/version_counter.h"

#include "extension/base/relation.h"
#include "extension/emit/given_version.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <access/tableam.h>
#include <catalog/pg_am.h>
#include <executor/tuptable.h>
#include <storage/bufmgr.h>
#include <utils/lsyscache.h>
}

namespace postbox {
namespace {

// Until a transaction has counted as many events of an aggregate, its row is exact.
constexpr uint32 kCountedInRow = 32;
// For what a transaction remembers of its aggregates.
constexpr size_t kMaxBytes = 16 * 1024 * 1024;

// What a transaction knows of an aggregate whose row it has locked.
struct Count {
  bool known = false;     // if not, the row has to be asked
  int64 last = 0;         // the last version given to an event
  int64 stored = 0;       // the version in the row, not below last
  ItemPointerData row{};  // where the row is, if stored is above last
  int64 events = 0;
  // The subtransaction in which this was set.
  SubTransactionId since = TopSubTransactionId;
};

// What a Count was before the subtransaction `in` changed it. A subtransaction has at most one for
// each Count, and those of a subtransaction stand behind those of its parent.
struct Undo {
  Count* count;
  Count before;
  SubTransactionId in;
};

// While a row is set ahead or back. That may run the owner's code (a CHECK, the expression of an
// index), and what it emits is counted in the rows: the statement that runs is not to be replaced,
// and the Count that is being set not to be changed.
bool setting_row = false;
class SettingRow {
 public:
  SettingRow() { setting_row = true; }
  ~SettingRow() { setting_row = false; }
  SettingRow(const SettingRow&) = delete;
  SettingRow& operator=(const SettingRow&) = delete;
};

// By KeyOf(). No Count is removed before the transaction ends.
std::unordered_map<std::string, Count>& counts = *new std::unordered_map<std::string, Count>;
std::vector<Undo>& undos = *new std::vector<Undo>;
size_t bytes_used = 0;

// How often a transaction has counted an aggregate in its row: a small table that forgets the
// aggregates with the fewest events, so that a transaction with a million aggregates needs no
// memory for them.
struct Seen {
  uint32 transaction;
  uint32 mark;  // of the aggregate
  uint32 times;
};
constexpr size_t kBuckets = 1024;
constexpr size_t kPlaces = 4;
std::array<std::array<Seen, kPlaces>, kBuckets> seen{};
uint32 transaction = 1;
bool counted_in_this_transaction = false;

// Remembers an aggregate that was counted in its row, and says whether that is often enough.
bool IsFrequent(size_t hash) {
  counted_in_this_transaction = true;
  auto& bucket = seen[hash % kBuckets];
  const auto mark = static_cast<uint32>(hash / kBuckets);
  Seen* place = bucket.data();
  for (Seen& candidate : bucket) {
    if (candidate.transaction != transaction) candidate = {transaction, 0, 0};
    if (candidate.times > 0 && candidate.mark == mark) {
      if (++candidate.times < kCountedInRow) return false;
      candidate.times = 0;  // the place is for others
      return true;
    }
    if (candidate.times < place->times) place = &candidate;
  }
  *place = {transaction, mark, 1};
  return false;
}

std::string_view BytesOf(Datum text) {
  const auto* value = reinterpret_cast<const varlena*>(DatumGetPointer(text));
  return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

struct KeyHead {
  Oid counter;
  uint32 type_length;
};

// Valid until the next call.
const std::string& KeyOf(Oid counter, const Aggregate& aggregate) {
  static std::string& key = *new std::string;
  const std::string_view type = BytesOf(aggregate.type);
  const KeyHead head{counter, static_cast<uint32>(type.size())};
  key.assign(reinterpret_cast<const char*>(&head), sizeof head);
  key.append(type).append(BytesOf(aggregate.id));
  return key;
}

Count* FindCount(const Outbox& outbox, const Aggregate& aggregate) {
  if (counts.empty() || setting_row) return nullptr;
  const auto found = counts.find(KeyOf(outbox.facts().counter, aggregate));
  return found == counts.end() || !found->second.known ? nullptr : &found->second;
}

// To be called before a Count is changed.
void KeepForUndo(Count* count) {
  const SubTransactionId current = GetCurrentSubTransactionId();
  if (count->since == current) return;
  undos.push_back({count, *count, current});
  count->since = current;
}

void Forget(Count* count) {
  KeepForUndo(count);
  count->known = false;
}

// Opens the counter, if it is there, an ordinary table, and an UPDATE does nothing but update.
Relation OpenPlainCounter(Oid counter) {
  Relation relation = try_relation_open(counter, AccessShareLock);
  if (relation == nullptr) return nullptr;
  const FormData_pg_class& form = *relation->rd_rel;
  if (form.relkind == RELKIND_RELATION && form.relam == HEAP_TABLE_AM_OID && !form.relhastriggers &&
      !form.relhasrules && !form.relrowsecurity) {
    return relation;
  }
  relation_close(relation, AccessShareLock);
  return nullptr;
}

// The value of a column, if it is there, of this type, and not NULL.
std::optional<Datum> ValueOf(TupleTableSlot* slot, const char* column, Oid type) {
  const int number = SPI_fnumber(slot->tts_tupleDescriptor, column);
  if (number <= 0 || SPI_gettypeid(slot->tts_tupleDescriptor, number) != type) return std::nullopt;
  bool null = true;
  const Datum value = slot_getattr(slot, number, &null);
  return null ? std::nullopt : std::optional(value);
}

bool HasText(TupleTableSlot* slot, const char* column, Datum wanted) {
  const auto value = ValueOf(slot, column, TEXTOID);
  return value && BytesOf(PointerGetDatum(DatumGetTextPP(*value))) == BytesOf(wanted);
}

bool HasVersion(TupleTableSlot* slot, int64 version) {
  const auto value = ValueOf(slot, "version", INT8OID);
  return value && DatumGetInt64(*value) == version;
}

// Whether the row of the aggregate is still where it was written, as it was written. Only
// this transaction can have changed it.
bool IsAsStored(Oid counter, const Aggregate& aggregate, const Count& count) {
  return Pg([&] {
    Relation relation = OpenPlainCounter(counter);
    if (relation == nullptr) return false;
    bool same = false;
    ItemPointerData row = count.row;
    // The table may have been truncated.
    if (ItemPointerGetBlockNumber(&row) < RelationGetNumberOfBlocks(relation)) {
      TupleTableSlot* slot =
          MakeSingleTupleTableSlot(RelationGetDescr(relation), table_slot_callbacks(relation));
      same = table_tuple_fetch_row_version(relation, &row, SnapshotSelf, slot) &&
             HasVersion(slot, count.stored) && HasText(slot, "aggregate_id", aggregate.id) &&
             HasText(slot, "aggregate_type", aggregate.type);
      ExecDropSingleTupleTableSlot(slot);
    }
    relation_close(relation, AccessShareLock);
    return same;
  });
}

// Sets the row of an aggregate from one version to another, and says where it is then. False if the
// row does not have the first version.
bool SetRow(Oid counter, const std::string& name, const Aggregate& aggregate, int64 from, int64 to,
            ItemPointerData* row) {
  struct Kept {
    std::string name;
    Statement statement;
  };
  static auto& kept = *new std::unordered_map<Oid, Kept>;
  const SettingRow setting;
  Kept& set = kept[counter];
  if (set.name != name) {
    set.statement =
        Statement::ByKey("UPDATE ONLY " + name +
                             " SET version = $4 WHERE aggregate_type = $1 AND aggregate_id = "
                             "$2 AND version = $3 RETURNING ctid",
                         {TEXTOID, TEXTOID, INT8OID, INT8OID});
    set.name = name;
  }
  if (set.statement.Run({aggregate.type, aggregate.id, Int64GetDatum(from), Int64GetDatum(to)}) ==
      0) {
    return false;
  }
  *row = TidColumn(0, 1);
  FreeRows();
  return true;
}

// Sets the row ahead of `version`, which is not below `last`. False if it is not as it was stored.
bool Reserve(const Outbox& outbox, const Aggregate& aggregate, int64 version, Count* count) {
  const OutboxFacts& facts = outbox.facts();
  const int64 ahead = std::min(count->events, std::numeric_limits<int64>::max() - version);
  ItemPointerData row;
  if (ahead == 0 ||
      !SetRow(facts.counter, facts.counter_name, aggregate, count->stored, version + ahead, &row)) {
    return false;
  }
  KeepForUndo(count);
  count->stored = version + ahead;
  count->row = row;
  return true;
}

// What memory says of the aggregate if its row still says the same. If `last` is what is stored,
// the next thing to do is Reserve(), which looks itself.
Count* FindValidCount(const Outbox& outbox, const Aggregate& aggregate) {
  Count* count = FindCount(outbox, aggregate);
  if (count == nullptr || count->last == count->stored) return count;
  if (IsAsStored(outbox.facts().counter, aggregate, *count)) return count;
  Forget(count);
  return nullptr;
}

void GiveOut(int64 version, Count* count) {
  KeepForUndo(count);
  count->last = version;
  ++count->events;
}

// Whether it is a text that equals no other one.
bool IsPlainText(TupleDesc columns, const char* column) {
  const int number = SPI_fnumber(columns, column);
  return number > 0 && SPI_gettypeid(columns, number) == TEXTOID &&
         get_collation_isdeterministic(TupleDescAttr(columns, number - 1)->attcollation);
}

bool CanBeSetAhead(Oid counter) {
  return Pg([&] {
    Relation relation = OpenPlainCounter(counter);
    if (relation == nullptr) return false;
    const TupleDesc columns = RelationGetDescr(relation);
    const int version = SPI_fnumber(columns, "version");
    const bool result = version > 0 && SPI_gettypeid(columns, version) == INT8OID &&
                        IsPlainText(columns, "aggregate_type") &&
                        IsPlainText(columns, "aggregate_id");
    relation_close(relation, AccessShareLock);
    return result;
  });
}

// Sets the rows that are ahead to the last version that was given out.
void SetRowsBack() {
  std::vector<std::pair<std::string_view, Count*>> ahead;
  for (auto& [key, count] : counts) {
    if (count.known && count.last != count.stored) ahead.emplace_back(key, &count);
  }
  if (ahead.empty()) return;
  SpiConnection connection;
  FixedSearchPath search_path;
  for (auto& [key, count] : ahead) {
    KeyHead head;
    std::memcpy(&head, key.data(), sizeof head);
    // By OID: what has happened to the outbox since, in this transaction, does not matter.
    const std::string name = RelationName(head.counter);
    if (name.empty()) continue;
    const ActAs owner(RelationOwner(head.counter));
    const Aggregate aggregate{TextValue(key.substr(sizeof head, head.type_length)),
                              TextValue(key.substr(sizeof head + head.type_length))};
    SetRow(head.counter, name, aggregate, count->stored, count->last, &count->row);
    count->known = false;
  }
}

void BeforeTransactionEnd() {
  // What was emitted is written even if the transaction has been made read-only since.
  const bool read_only = XactReadOnly;
  XactReadOnly = false;
  try {
    // SPI wants one around it, and there is none when a transaction ends.
    Pg([] { PushActiveSnapshot(GetTransactionSnapshot()); });
    SetRowsBack();
    Pg([] { PopActiveSnapshot(); });
  } catch (...) {
    XactReadOnly = read_only;
    throw;
  }
  XactReadOnly = read_only;
}

void AfterTransactionEnd() {
  if (!counted_in_this_transaction) return;
  counted_in_this_transaction = false;
  ++transaction;
  if (counts.empty()) return;
  std::vector<Undo>().swap(undos);
  std::unordered_map<std::string, Count>().swap(counts);
  bytes_used = 0;
}

void AtTransactionEvent(XactEvent event, void* /*argument*/) {
  switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
      if (!counts.empty()) Guarded([] { BeforeTransactionEnd(); });
      break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE:
    case XACT_EVENT_ABORT:
      AfterTransactionEnd();
      break;
    default:
      break;
  }
}

// Must not raise an error, and needs no memory.
void AtSubtransactionEvent(SubXactEvent event, SubTransactionId id, SubTransactionId parent,
                           void* /*argument*/) {
  if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB) return;
  auto first = undos.end();
  while (first != undos.begin() && std::prev(first)->in == id) --first;
  auto kept = first;
  for (auto undo = first; undo != undos.end(); ++undo) {
    if (event == SUBXACT_EVENT_ABORT_SUB) {
      *undo->count = undo->before;
      continue;
    }
    undo->count->since = parent;
    // If the parent had set it, it still has what it needs to undo that.
    if (undo->before.since == parent) continue;
    undo->in = parent;
    *kept++ = *undo;
  }
  undos.erase(kept, undos.end());
}

void WatchTransactions() {
  static bool watching = false;
  if (watching) return;
  RegisterXactCallback(AtTransactionEvent, nullptr);
  RegisterSubXactCallback(AtSubtransactionEvent, nullptr);
  watching = true;
}

// Updates the row, or makes it if there is none. Returns the number of rows.
//
// INSERT ... ON CONFLICT DO UPDATE alone would do, but where there is a row it locks it first and
// updates it then. If subtransactions do that one after the other, each adds itself to the lockers
// of the row: a multixact with one member more each time.
uint64 UpdateOrMake(Outbox* outbox, OutboxStatement update, OutboxStatement make, Datum* values) {
  const uint64 rows = outbox->Run(update, values);
  return rows > 0 ? rows : outbox->Run(make, values);
}

// To be called when an event has been counted in the row, which holds `version` now.
void CountedInRow(const Outbox& outbox, const Aggregate& aggregate, int64 version) {
  if (setting_row) return;
  WatchTransactions();
  const Oid counter = outbox.facts().counter;
  const std::string& key = KeyOf(counter, aggregate);
  // What is in `counts` was frequent before, in a subtransaction that was rolled back.
  auto found = counts.find(key);
  if (found == counts.end() && !IsFrequent(std::hash<std::string>()(key))) return;
  if (!CanBeSetAhead(counter)) return;
  if (found == counts.end()) {
    const size_t bytes = sizeof(Undo) + sizeof(std::pair<std::string, Count>) + key.size() + 64;
    if (bytes_used + bytes > kMaxBytes) return;
    found = counts.emplace(key, Count{}).first;
    bytes_used += bytes;
  }
  Count* count = &found->second;
  KeepForUndo(count);
  count->known = true;
  count->last = count->stored = version;
  count->events = std::max<int64>(count->events, kCountedInRow);
}

// Calls PostgreSQL as between statements: what was done before is seen, and what is done here is
// seen after.
template <class Work>
int64 AsStatement(Work&& work) {
  return Pg([&] {
    CommandCounterIncrement();
    const int64 version = work();
    CommandCounterIncrement();
    return version;
  });
}

// Returns the version of the row then; 0 if a statement has to do it.
int64 RaiseToFloor(PlainTable* counter, const Aggregate& aggregate, int64 version) {
  return AsStatement([&]() -> int64 {
    return RaiseInTable(counter, aggregate.type, aggregate.id, version) ? version : 0;
  });
}

// Changes the row of an aggregate without a statement: calls `change(counter)`, in Pg(), which
// returns the version of the row, or 0 if a statement has to do it. If the version is then `lowest`
// or below, the row may be new; then it is raised above the floor of its type, which can be relied
// on as soon as the row is there (given_version.h). Returns its version, or 0.
template <class Change>
int64 ChangeWithoutSql(const Outbox& outbox, const Aggregate& aggregate, int64 lowest,
                       int above_floor, Change&& change) {
  PlainTable counter;
  if (!outbox.OpenCounter(&counter)) return 0;
  int64 version = AsStatement([&] { return change(&counter); });
  if (version != 0 && version <= lowest) {
    const int64 floor = FloorOfType(outbox, aggregate.type) + above_floor;
    // The statement looks at the floor, too.
    if (version < floor) version = RaiseToFloor(&counter, aggregate, floor);
  }
  Pg([&] { ClosePlainTable(&counter); });
  return version;
}

// The lowest version that Postbox gives to an aggregate of this outbox.
int64 LowestVersion(const Outbox& outbox) { return outbox.facts().version_floor + 1; }

// That of an aggregate of this type, as far as this transaction knows.
int64 FirstVersion(const Outbox& outbox, Datum type) {
  return std::max(LowestVersion(outbox), KnownFloorOfType(outbox, type) + 1);
}

[[noreturn]] void ThrowVersionTaken(const Outbox& outbox, const Aggregate& aggregate, int64 version,
                                    int64 last) {
  Throw(
      ERRCODE_INVALID_PARAMETER_VALUE,
      "version " + std::to_string(version) + " of " + std::string(BytesOf(aggregate.type)) + " \"" +
          std::string(BytesOf(aggregate.id)) + "\" " +
          (last == version ? "is already in use" : "is lower than the last one"),
      "The last version in outbox \"" + outbox.facts().name + "\" is " + std::to_string(last) + ".",
      "Versions of an aggregate must increase. Omit version to let the outbox count.");
}

// Makes the version in a row that this transaction has locked `lowest`, if it is below that: the
// row may be new. Returns what the row has then.
int64 RaiseAbove(Outbox* outbox, const Aggregate& aggregate, int64 version, int64 lowest) {
  if (version >= lowest) return version;
  std::array<Datum, 3> values = {aggregate.type, aggregate.id, Int64GetDatum(lowest)};
  return outbox->Run(OutboxStatement::kTakeVersionOfRow, values.data()) > 0 ? lowest : version;
}

}  // namespace

bool IsCountedInMemory(const Outbox& outbox, const Aggregate& aggregate) {
  return FindCount(outbox, aggregate) != nullptr;
}

size_t CountVersionsInTable(const Outbox& outbox, PlainTable* counter, Datum type,
                            std::span<EventCount> counts) {
  const auto counted = static_cast<size_t>(AsStatement([&] {
    return static_cast<int64>(CountUpInTable(counter, type, FirstVersion(outbox, type), counts));
  }));
  const int64 lowest = LowestVersion(outbox);
  for (size_t i = 0; i < counted; ++i) {
    EventCount& count = counts[i];
    const Aggregate aggregate{type, count.aggregate_id};
    const int64 others = count.events - 1;
    if (count.version - others <= lowest) {
      const int64 floor = FloorOfType(outbox, type) + 1;
      if (count.version - others < floor) {
        count.version = RaiseToFloor(counter, aggregate, floor + others);
        if (count.version == 0) return i;
      }
    }
    CountedInRow(outbox, aggregate, count.version);
  }
  return counted;
}

int64 CountVersionWithoutSql(const Outbox& outbox, const Aggregate& aggregate) {
  if (Count* count = FindValidCount(outbox, aggregate); count != nullptr) {
    if (count->last == count->stored) return 0;
    GiveOut(count->last + 1, count);
    return count->last;
  }
  const int64 first = FirstVersion(outbox, aggregate.type);
  const int64 version =
      ChangeWithoutSql(outbox, aggregate, LowestVersion(outbox), 1, [&](PlainTable* counter) {
        EventCount count = {aggregate.id, 1, false, 0, 0};
        return CountUpInTable(counter, aggregate.type, first, {&count, 1}) == 1 ? count.version : 0;
      });
  if (version != 0) CountedInRow(outbox, aggregate, version);
  return version;
}

bool TakeVersionWithoutSql(const Outbox& outbox, const Aggregate& aggregate, int64 version) {
  if (Count* count = FindValidCount(outbox, aggregate); count != nullptr) {
    if (count->last == count->stored || version > count->stored) return false;
    if (version > count->last) GiveOut(version, count);
    return true;
  }
  const int64 stored =
      ChangeWithoutSql(outbox, aggregate, version, 0, [&](PlainTable* counter) -> int64 {
        return RaiseInTable(counter, aggregate.type, aggregate.id, version) ? version : 0;
      });
  if (stored != 0) CountedInRow(outbox, aggregate, stored);
  return stored != 0;
}

int64 CountVersion(Outbox* outbox, const Aggregate& aggregate) {
  if (Count* count = FindValidCount(*outbox, aggregate); count != nullptr) {
    if (count->last < count->stored || Reserve(*outbox, aggregate, count->last, count)) {
      GiveOut(count->last + 1, count);
      return count->last;
    }
    Forget(count);
  }
  std::array<Datum, 2> values = {aggregate.type, aggregate.id};
  UpdateOrMake(outbox, OutboxStatement::kNextVersionOfRow, OutboxStatement::kNextVersion,
               values.data());
  const int64 version =
      RaiseAbove(outbox, aggregate, Int64Column(0, 1), FloorOfType(*outbox, aggregate.type) + 1);
  CountedInRow(*outbox, aggregate, version);
  return version;
}

void TakeVersion(Outbox* outbox, const Aggregate& aggregate, int64 version) {
  const bool is_log = outbox->facts().is_log;
  if (Count* count = FindValidCount(*outbox, aggregate); count != nullptr) {
    if (version <= count->last && count->last < count->stored) {
      if (is_log) return;
      ThrowVersionTaken(*outbox, aggregate, version, count->last);
    }
    if (version > count->last &&
        (version <= count->stored || Reserve(*outbox, aggregate, version, count))) {
      GiveOut(version, count);
      return;
    }
    Forget(count);
  }
  std::array<Datum, 3> values = {aggregate.type, aggregate.id, Int64GetDatum(version)};
  if (UpdateOrMake(outbox, OutboxStatement::kTakeVersionOfRow, OutboxStatement::kTakeVersion,
                   values.data()) == 0) {
    if (is_log) return;
    outbox->Run(OutboxStatement::kLastVersion, values.data());
    ThrowVersionTaken(*outbox, aggregate, version, Int64Column(0, 1));
  }
  CountedInRow(*outbox, aggregate,
               RaiseAbove(outbox, aggregate, version, FloorOfType(*outbox, aggregate.type)));
}

void LockAggregate(Outbox* outbox, const Aggregate& aggregate) {
  // Whatever this transaction has done to the row since: the lock lasts until it ends.
  if (FindCount(*outbox, aggregate) != nullptr) return;
  std::array<Datum, 2> values = {aggregate.type, aggregate.id};
  UpdateOrMake(outbox, OutboxStatement::kLockVersionOfRow, OutboxStatement::kLockVersion,
               values.data());
  CountedInRow(
      *outbox, aggregate,
      RaiseAbove(outbox, aggregate, Int64Column(0, 1), FloorOfType(*outbox, aggregate.type)));
}

}  // namespace postbox
