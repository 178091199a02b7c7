#include "extension/inbox/projection.h"
#include "extension/base/relation.h"

extern "C" {
#include <executor/executor.h>
#include <storage/lmgr.h>
#include <utils/json.h>
}

namespace postbox {
namespace {

// A payload may lack fields in any combination; the statements of this many combinations are kept.
constexpr size_t kMostStatements = 64;

// Finds the row whose key columns hold `values`, by a unique index, with a dirty read: waits until
// every transaction that is writing such a row has ended, and locks the row. If it returns true,
// `read` has been called with the row.
template <class Read>
bool DirtyFind(Oid relation_oid, Oid index, const AttrNumber* numbers, const Datum* values,
               size_t count, Read&& read) {
  return Pg([&] {
    Relation relation = table_open(relation_oid, RowExclusiveLock);
    TupleTableSlot* search = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
    TupleTableSlot* found = table_slot_create(relation, nullptr);
    ExecClearTuple(search);
    std::memset(search->tts_isnull, true, RelationGetDescr(relation)->natts * sizeof(bool));
    for (size_t i = 0; i < count; ++i) {
      search->tts_values[numbers[i] - 1] = values[i];
      search->tts_isnull[numbers[i] - 1] = false;
    }
    ExecStoreVirtualTuple(search);
    const bool there =
        RelationFindReplTupleByIndex(relation, index, LockTupleExclusive, search, found);
    if (there) read(found);
    ExecDropSingleTupleTableSlot(found);
    ExecDropSingleTupleTableSlot(search);
    table_close(relation, NoLock);
    return there;
  });
}

std::string TypeName(Oid type) {
  return Pg(
      [&]() -> const char* { return format_type_extended(type, -1, FORMAT_TYPE_FORCE_QUALIFY); });
}

}  // namespace

Tombstones::Tombstones(Oid relation, Oid index, const std::string& name)
    : relation_(relation),
      index_(index),
      raise_("INSERT INTO " + name +
                 " AS stored (target, key, version) VALUES ($1, $2, $3) "
                 "ON CONFLICT (target, key) DO UPDATE SET version = EXCLUDED.version, deleted_at = "
                 "pg_catalog.now() WHERE stored.version OPERATOR(pg_catalog.<) EXCLUDED.version",
             {REGCLASSOID, TEXTOID, INT8OID}),
      remove_("DELETE FROM " + name + " WHERE target = $1 AND key = $2", {REGCLASSOID, TEXTOID}),
      find_("SELECT version FROM " + name + " WHERE target = $1 AND key = $2",
            {REGCLASSOID, TEXTOID}) {}

bool Tombstones::Raise(Oid target, Datum key, int64 version) {
  const Datum values[] = {ObjectIdGetDatum(target), key, Int64GetDatum(version)};
  return raise_.Run(values) > 0;
}

void Tombstones::Remove(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  remove_.Run(values);
}

int64 Tombstones::Find(Oid target, Datum key) {
  // The table's columns are target, key, version, in this order (inbox.cc).
  const AttrNumber numbers[] = {1, 2};
  const Datum values[] = {ObjectIdGetDatum(target), key};
  int64 version = 0;
  DirtyFind(relation_, index_, numbers, values, 2, [&](TupleTableSlot* row) {
    bool null;
    const Datum value = slot_getattr(row, 3, &null);
    if (!null) version = DatumGetInt64(value);
  });
  return version;
}

int64 Tombstones::FindCommitted(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  int64 version = 0;
  find_.RunForInt64(values, nullptr, &version);
  return version;
}

Projection::Projection(const ProjectionConfig& config, MemoryContext context,
                       Tombstones* tombstones)
    : Projection(config, ResolveColumns(config), context, tombstones) {}

Projection::Projection(const ProjectionConfig& config, ProjectionColumns resolved,
                       MemoryContext context, Tombstones* tombstones)
    : id_(config.id),
      target_(config.target),
      target_name_(std::move(resolved.target_name)),
      deletes_(!config.delete_types.empty()),
      key_size_(resolved.key_size),
      key_operators_(std::move(resolved.key_operators)),
      primary_key_(resolved.primary_key),
      tombstones_(tombstones),
      values_(resolved.columns.size()),
      nulls_(resolved.columns.size(), ' '),
      all_present_(resolved.columns.size(), '1') {
  for (ProjectionColumn& column : resolved.columns) {
    Column made{std::move(column.name), column.number, std::move(column.source), {}, {}};
    Pg([&] {
      made.input = MakeColumnInput(column.type, context);
      Oid output;
      bool varlena;
      getTypeOutputInfo(column.type, &output, &varlena);
      fmgr_info_cxt(output, &made.output, context);
    });
    columns_.push_back(std::move(made));
  }
  full_ = &StatementsFor(all_present_);
  const std::string from = target_name_ + " AS stored WHERE " + KeyCondition();
  delete_older_ = Statement("DELETE FROM " + from + " AND " + Older(), Types(key_size_ + 1));
  delete_any_ = Statement("DELETE FROM " + from, Types(key_size_));
  stored_version_ = Statement(
      "SELECT stored." + Quoted(columns_[key_size_].name) + "::pg_catalog.int8 FROM " + from,
      Types(key_size_));
}

std::vector<Oid> Projection::Types(size_t count) const {
  std::vector<Oid> types;
  for (size_t i = 0; i < count; ++i) types.push_back(columns_[i].input.parameter_type());
  return types;
}

// The parameters have the numbers of the columns in every statement.
std::string Projection::Value(size_t column) const {
  const std::string parameter = "$" + std::to_string(column + 1);
  if (!columns_[column].input.structured) return parameter;
  return "(SELECT r.v FROM pg_catalog.jsonb_to_record(" + parameter + ") AS r (v " +
         TypeName(columns_[column].input.type) + "))";
}

std::string Projection::KeyCondition() const {
  std::string sql;
  for (size_t i = 0; i < key_size_; ++i) {
    if (i > 0) sql += " AND ";
    sql += "stored." + Quoted(columns_[i].name) + " " + key_operators_[i] + " " + Value(i);
  }
  return sql;
}

std::string Projection::Older() const {
  const std::string version = "stored." + Quoted(columns_[key_size_].name);
  return "(" + version + " < " + Value(key_size_) + " OR " + version + " IS NULL)";
}

std::string Projection::UpsertSql(const std::string& present) const {
  std::string names, values, key, assignments;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (present[i] == '0') continue;
    const std::string name = Quoted(columns_[i].name);
    const std::string separator = i == 0 ? "" : ", ";
    names += separator + name;
    values += separator + Value(i);
    if (i < key_size_) {
      key += separator + name;
    } else {
      assignments += (assignments.empty() ? "" : ", ") + name + " = EXCLUDED." + name;
    }
  }
  return "INSERT INTO " + target_name_ + " AS stored (" + names + ") VALUES (" + values +
         ") ON CONFLICT (" + key + ") DO UPDATE SET " + assignments + " WHERE " + Older();
}

std::string Projection::UpdateSql(const std::string& present) const {
  std::string assignments;
  for (size_t i = key_size_; i < columns_.size(); ++i) {
    if (present[i] == '0') continue;
    assignments += (assignments.empty() ? "" : ", ") + Quoted(columns_[i].name) + " = " + Value(i);
  }
  return "UPDATE " + target_name_ + " AS stored SET " + assignments + " WHERE " + KeyCondition() +
         " AND " + Older();
}

Projection::Statements& Projection::StatementsFor(const std::string& present) {
  const auto found = statements_.find(present);
  if (found != statements_.end()) return found->second;
  if (statements_.size() >= kMostStatements) {
    std::erase_if(statements_, [&](const auto& entry) { return &entry.second != full_; });
  }
  Statements& made = statements_[present];
  made.upsert = Statement(UpsertSql(present), Types(columns_.size()));
  if (present != all_present_) {
    made.update = Statement(UpdateSql(present), Types(columns_.size()));
  }
  return made;
}

void Projection::CheckVersion(const InboxEvent& event) const {
  if (event.IsNull(EventField::kVersion)) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "event has no version",
          "A projection tells newer from older by the version.");
  }
  if (event.version() <= 0) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "version " + std::to_string(event.version()) + " of the event is not positive",
          "Versions of an aggregate count from 1.");
  }
}

void Projection::BindColumn(size_t i, const InboxEvent& event, PayloadJson* payload) {
  Column& column = columns_[i];
  bool null = true;
  bool present = true;
  Pg([&] {
    if (column.source.event_field) {
      values_[i] =
          ColumnFromEvent(&column.input, *column.source.event_field, event, payload, &null);
      return;
    }
    JsonbValue value;
    present = payload->Find(column.source.path, &value);
    if (present) values_[i] = ColumnFromJson(&column.input, &value, &null);
  });
  nulls_[i] = null ? 'n' : ' ';
  present_[i] = present ? '1' : '0';
}

// Sets values_, nulls_ and present_ of the first `count` columns.
void Projection::Bind(const InboxEvent& event, PayloadJson* payload, size_t count) {
  present_ = all_present_;
  for (size_t i = 0; i < count; ++i) {
    try {
      BindColumn(i, event, payload);
    } catch (PostgresError& error) {
      if (error.detail.empty()) {
        error.detail =
            "The value is for column \"" + columns_[i].name + "\" of " + target_name_ + ".";
      }
      throw;
    }
    if (i < key_size_ && nulls_[i] == 'n') {
      Throw(
          ERRCODE_NOT_NULL_VIOLATION,
          "event has no value for key column \"" + columns_[i].name + "\" of " + target_name_,
          columns_[i].source.event_field
              ? std::string("Its ") + EventFieldName(*columns_[i].source.event_field) + " is null."
              : "Its payload has no field \"" + columns_[i].source.path.back() +
                    "\", or null there.");
    }
  }
}

Datum Projection::KeyText() {
  return Pg([&]() -> Datum {
    if (key_size_ == 1) {
      if (columns_[0].input.kind == ColumnInput::Kind::kText) return values_[0];
      return CStringGetTextDatum(OutputFunctionCall(&columns_[0].output, values_[0]));
    }
    StringInfoData text;
    initStringInfo(&text);
    for (size_t i = 0; i < key_size_; ++i) {
      appendStringInfoString(&text, i == 0 ? "[" : ", ");
      escape_json(&text, OutputFunctionCall(&columns_[i].output, values_[i]));
    }
    appendStringInfoChar(&text, ']');
    return PointerGetDatum(cstring_to_text_with_len(text.data, text.len));
  });
}

void Projection::BindKeyText(std::string_view text) {
  const std::string copy(text);
  Pg([&] {
    bool null = false;
    if (key_size_ == 1) {
      values_[0] = ColumnFromText(&columns_[0].input, pstrdup(copy.c_str()), &null);
      return;
    }
    Jsonb* parts = nullptr;
    if (!copy.empty() && copy[0] == '[') {
      parts = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(copy.c_str())));
    }
    if (parts == nullptr || JB_ROOT_COUNT(parts) != key_size_) {
      ereport(ERROR,
              (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid key \"%s\"", copy.c_str()),
               errdetail("The key of %s has %zu columns.", target_name_.c_str(), key_size_),
               errhint("Write it as a JSON array, for example [\"eu\", 42].")));
    }
    for (size_t i = 0; i < key_size_; ++i) {
      JsonbValue* value = getIthJsonbValueFromContainer(&parts->root, static_cast<uint32>(i));
      values_[i] = ColumnFromJson(&columns_[i].input, value, &null);
      if (null) {
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key may not be null")));
      }
    }
  });
  std::fill(nulls_.begin(), nulls_.begin() + static_cast<ptrdiff_t>(key_size_), ' ');
}

bool Projection::FindStored(int64* version) {
  return stored_version_.RunForInt64(values_.data(), nulls_.data(), version);
}

bool Projection::IsStored() {
  int64 version = 0;
  return FindStored(&version);
}

Outcome Projection::Upsert(const InboxEvent& event, PayloadJson* payload) {
  CheckVersion(event);
  Bind(event, payload, columns_.size());
  // Before anything else, so that an event that comes too late is not rejected for its content.
  if (keeps_tombstones_ && tombstones_->Find(target_, KeyText()) >= event.version()) {
    return Outcome::kStale;
  }
  const bool all = present_ == all_present_;
  Statements& statements = all ? *full_ : StatementsFor(present_);
  uint64 changed = 0;
  if (!all) {
    changed = statements.update.Run(values_.data(), nulls_.data());
    if (changed == 0 && IsStored()) {
      return Outcome::kStale;
    }
  }
  if (changed == 0) changed = statements.upsert.Run(values_.data(), nulls_.data());
  if (changed == 0) return Outcome::kStale;
  if (!keeps_tombstones_) return Outcome::kApplied;

  const Datum key = KeyText();
  const int64 deleted_at = tombstones_->Find(target_, key);
  if (deleted_at >= event.version()) {
    delete_any_.Run(values_.data(), nulls_.data());
    return Outcome::kStale;
  }
  if (deleted_at > 0) tombstones_->Remove(target_, key);
  return Outcome::kApplied;
}

// D4 of projection.h: whether there is a row with the bound key, committed or not.
bool Projection::FindRow() {
  if (!OidIsValid(primary_key_)) {
    Pg([&] { LockRelationOid(target_, ShareRowExclusiveLock); });
    return IsStored();
  }
  std::vector<AttrNumber> numbers;
  for (size_t i = 0; i < key_size_; ++i) numbers.push_back(columns_[i].number);
  return DirtyFind(target_, primary_key_, numbers.data(), values_.data(), key_size_,
                   [](TupleTableSlot*) {});
}

Outcome Projection::Delete(const InboxEvent& event, PayloadJson* payload) {
  CheckVersion(event);
  Bind(event, payload, key_size_ + 1);
  const Datum key = KeyText();
  if (delete_older_.Run(values_.data(), nulls_.data()) > 0) {
    tombstones_->Raise(target_, key, event.version());
    return Outcome::kApplied;
  }
  if (IsStored()) return Outcome::kStale;
  if (!tombstones_->Raise(target_, key, event.version())) return Outcome::kStale;
  if (!FindRow()) return Outcome::kApplied;
  if (delete_older_.Run(values_.data(), nulls_.data()) > 0) return Outcome::kApplied;
  tombstones_->Remove(target_, key);
  return Outcome::kStale;
}

}  // namespace postbox
