#include "extension/apply/projection.h"

#include "extension/apply/dirty_find.h"
#include "extension/apply/set_target.h"
#include "extension/base/relation.h"

extern "C" {
#include <access/xact.h>
#include <storage/lmgr.h>
#include <utils/datum.h>
#include <utils/json.h>
#include <utils/rls.h>
#include <utils/snapmgr.h>
}

namespace postbox {
namespace {

// A payload may lack fields in any combination; the statements of this many combinations are kept.
constexpr size_t kMostStatements = 64;

// Counts the calls that are reading values.
class Nested {
 public:
  explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
  ~Nested() { --*depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int* const depth_;
};

std::string KeptAt(int64 version) {
  return "The row is still there, with version " + std::to_string(version) +
         ". A trigger, a rule or a policy of the table keeps it.";
}

}  // namespace

Tombstones::Tombstones(TombstoneTable table)
    : table_(std::move(table)),
      raise_("INSERT INTO " + table_.name +
                 " AS stored (target, key, version) VALUES ($1, $2, $3) "
                 "ON CONFLICT (target, key) DO UPDATE SET version = EXCLUDED.version, deleted_at = "
                 "pg_catalog.now() WHERE stored.version OPERATOR(pg_catalog.<) EXCLUDED.version",
             {REGCLASSOID, TEXTOID, INT8OID}),
      remove_(Statement::ByKey("DELETE FROM " + table_.name + " WHERE target = $1 AND key = $2",
                               {REGCLASSOID, TEXTOID})),
      find_(
          Statement::ByKey("SELECT version FROM " + table_.name + " WHERE target = $1 AND key = $2",
                           {REGCLASSOID, TEXTOID})) {}

bool Tombstones::Raise(Oid target, Datum key, int64 version) {
  const Datum values[] = {ObjectIdGetDatum(target), key, Int64GetDatum(version)};
  if (raise_.Run(values) > 0) return true;
  if (FindCommitted(target, key) >= version) return false;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "the version of a deleted key was not stored in " + table_.name,
        "A trigger, a rule or a policy of the table suppresses it. Without it a late event would "
        "bring the row back.",
        "Drop the trigger, rule or policy.");
}

void Tombstones::Remove(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  remove_.Run(values);
}

int64 Tombstones::Find(Oid target, Datum key) {
  const SearchColumn columns[] = {{table_.target, REGCLASSOID, ObjectIdGetDatum(target)},
                                  {table_.key, TEXTOID, key}};
  int64 version = 0;
  DirtyFind(table_.relation, table_.index, columns, {table_.version, INT8OID}, &version);
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
      target_name_(resolved.target_name),
      deletes_(!config.delete_types.empty()),
      key_size_(resolved.key_size),
      key_operators_(std::move(resolved.key_operators)),
      primary_key_(resolved.primary_key),
      code_(RowCodeOf(config.target)),
      watch_(config.id),
      tombstones_(tombstones),
      all_present_(resolved.columns.size(), '1') {
  for (const ProjectionColumn& column : resolved.columns) AddColumn(column, context);
  if (TakesSets(target_, resolved)) {
    set_ = std::make_unique<RowSet>(resolved, Older("EXCLUDED." + Quoted(version_column())));
  }
  full_ = StatementsFor(all_present_);
  const std::string from = target_name_ + " AS stored WHERE " + KeyCondition();
  delete_older_ = Statement::ByKey("DELETE FROM " + from + " AND " + Older(Value(key_size_)),
                                   Types(key_size_ + 1));
  delete_any_ = Statement::ByKey("DELETE FROM " + from, Types(key_size_));
  stored_version_ = Statement::ByKey(
      "SELECT stored." + Quoted(columns_[key_size_].name) + "::pg_catalog.int8 FROM " + from,
      Types(key_size_));
}

void Projection::AddColumn(const ProjectionColumn& resolved, MemoryContext context) {
  Column column;
  column.name = resolved.name;
  column.number = resolved.number;
  column.source = resolved.source;
  column.type = resolved.type;
  Pg([&] {
    column.input = MakeColumnInput(column.type, resolved.typmod, column.source.form, context);
    if (columns_.size() < key_size_) {
      column.key_form = MakeKeyForm(column.type, resolved.collation, context);
    }
  });
  if (!column.source.event_field) {
    std::vector<std::string> path;
    for (const std::string& name : column.source.path) path.push_back(Utf8Text(name));
    column.place = paths_.Add(path);
    if (column.source.form == ValueForm::kPlain) {
      column.shape = ShapeOf(column.type, &relations_of_types_);
    }
    const bool is_key = columns_.size() < key_size_;
    (is_key ? key_reads_payload_ : rest_reads_payload_) = true;
    if (!is_key) watch_.Add(column.name, std::move(path), column.place, resolved.by_chance);
  }
  const bool is_type = column.source.event_field == EventField::kAggregateType;
  key_has_type_ = key_has_type_ || (is_type && columns_.size() < key_size_);
  columns_.push_back(std::move(column));
}

std::vector<Oid> Projection::Types(size_t count) const {
  std::vector<Oid> types;
  for (size_t i = 0; i < count; ++i) types.push_back(columns_[i].type);
  return types;
}

// The parameters have the numbers of the columns in every statement.
std::string Projection::Value(size_t column) const { return "$" + std::to_string(column + 1); }

std::string Projection::KeyCondition() const {
  std::string sql;
  for (size_t i = 0; i < key_size_; ++i) {
    if (i > 0) sql += " AND ";
    sql += "stored." + Quoted(columns_[i].name) + " " + key_operators_[i] + " " + Value(i);
  }
  return sql;
}

// That the stored row is older than `version`.
std::string Projection::Older(const std::string& version) const {
  const std::string stored = "stored." + Quoted(version_column());
  return "(" + stored + " < " + version + " OR " + stored + " IS NULL)";
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
         ") ON CONFLICT (" + key + ") DO UPDATE SET " + assignments + " WHERE " +
         Older(Value(key_size_)) + ReturningVersion();
}

std::string Projection::UpdateSql(const std::string& present) const {
  std::string assignments;
  for (size_t i = key_size_; i < columns_.size(); ++i) {
    if (present[i] == '0') continue;
    assignments += (assignments.empty() ? "" : ", ") + Quoted(columns_[i].name) + " = " + Value(i);
  }
  return "UPDATE " + target_name_ + " AS stored SET " + assignments + " WHERE " + KeyCondition() +
         " AND " + Older(Value(key_size_)) + ReturningVersion();
}

std::string Projection::ReturningVersion() const {
  if (!code_.writes) return "";
  return " RETURNING stored." + Quoted(columns_[key_size_].name) + "::pg_catalog.int8";
}

std::shared_ptr<Projection::Statements> Projection::StatementsFor(const std::string& present) {
  const auto found = statements_.find(present);
  if (found != statements_.end()) return found->second;
  if (statements_.size() >= kMostStatements) {
    std::erase_if(statements_, [&](const auto& entry) { return entry.second != full_; });
  }
  auto made = std::make_shared<Statements>();
  made->upsert = Statement(UpsertSql(present), Types(columns_.size()));
  if (present != all_present_) {
    made->update = Statement::ByKey(UpdateSql(present), Types(columns_.size()));
  }
  // Only when it is complete: an empty statement writes nothing and raises no error.
  statements_.emplace(present, made);
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

// The value of a JSON field, which is there.
Datum Projection::FieldValue(const Column& column, ColumnInput* input, json::Value value,
                             PayloadJson* payload, bool* null) {
  const size_t names = column.source.path.size();
  if (value.names < names) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "field \"" + PathText(column.source.path, value.names) +
                                               "\" of the payload is " + JsonKindName(value.kind) +
                                               ", not an object");
  }
  std::string shaped;
  if (input->structured || column.shape.kind == ValueShape::Kind::kBytes) {
    shaped = ShapedValue(column.shape, value.text);
    value.text = shaped;
  }
  return Pg([&] { return ColumnFromJson(input, value, payload, null); });
}

void Projection::BindColumn(size_t i, const InboxEvent& event, PayloadJson* payload,
                            BoundValues* bound) {
  Column& column = columns_[i];
  ColumnInput* input = &column.input;
  ColumnInput own;
  if (binding_ > 1) {
    own = WithoutState(column.input);
    input = &own;
  }
  bool null = true;
  bool present = true;
  if (column.source.event_field) {
    Pg([&] {
      bound->values[i] = ColumnFromEvent(input, *column.source.event_field, event, payload, &null);
    });
  } else {
    const json::Value& value = bound->fields[column.place];
    present = value.kind != json::Kind::kAbsent;
    if (present) bound->values[i] = FieldValue(column, input, value, payload, &null);
  }
  bound->nulls[i] = null ? 'n' : ' ';
  bound->present[i] = present ? '1' : '0';
}

// The values of the columns from `first` to before `end`.
void Projection::Bind(const InboxEvent& event, PayloadJson* payload, size_t first, size_t end,
                      BoundValues* bound) {
  const Nested nested(&binding_);
  const bool reads = end > key_size_ + 1 ? rest_reads_payload_ : key_reads_payload_;
  if (reads && bound->fields.empty()) payload->Find(paths_, &bound->fields);
  for (size_t i = first; i < end; ++i) {
    const Column& column = columns_[i];
    try {
      BindColumn(i, event, payload, bound);
    } catch (PostgresError& error) {
      error.detail += (error.detail.empty() ? "" : " ") +
                      std::string("The value is for column \"") + column.name + "\" of " +
                      target_name_ + ", from " + SourceText(column.source) + ".";
      throw;
    }
    if (i < key_size_ && bound->nulls[i] == 'n') {
      Throw(ERRCODE_NOT_NULL_VIOLATION,
            "event has no value for key column \"" + column.name + "\" of " + target_name_,
            column.source.event_field
                ? std::string("Its ") + EventFieldName(*column.source.event_field) + " is null."
                : "Its payload has no field \"" + PathText(column.source.path) +
                      "\", or null there.");
    }
  }
}

// Those of the key and the version.
BoundValues Projection::BindKey(const InboxEvent& event, PayloadJson* payload) {
  BoundValues bound(columns_.size());
  bound.present = all_present_;
  Bind(event, payload, 0, key_size_ + 1, &bound);
  return bound;
}

Datum Projection::KeyText(const BoundValues& key) {
  return Pg([&]() -> Datum {
    if (key_size_ == 1) {
      KeyForm& form = columns_[0].key_form;
      const bool is_text = columns_[0].input.kind == ColumnInput::Kind::kText;
      if (is_text && form.kind == KeyForm::Kind::kOutput) return key.values[0];
      return CStringGetTextDatum(postbox::KeyText(&form, key.values[0]));
    }
    StringInfoData text;
    initStringInfo(&text);
    for (size_t i = 0; i < key_size_; ++i) {
      appendStringInfoString(&text, i == 0 ? "[" : ", ");
      escape_json(&text, postbox::KeyText(&columns_[i].key_form, key.values[i]));
    }
    appendStringInfoChar(&text, ']');
    return PointerGetDatum(cstring_to_text_with_len(text.data, text.len));
  });
}

BoundValues Projection::BindKeyText(std::string_view text) {
  const Nested nested(&binding_);
  BoundValues key(columns_.size());
  const std::string copy(text);
  Pg([&] {
    bool null = false;
    if (key_size_ == 1) {
      ColumnInput input = WithoutState(columns_[0].input);
      key.values[0] = ColumnFromText(&input, pstrdup(copy.c_str()), &null);
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
      ColumnInput input = WithoutState(columns_[i].input);
      key.values[i] = ColumnFromKeyPart(&input, value, &null);
      if (null) {
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key may not be null")));
      }
    }
  });
  return key;
}

bool Projection::FindStored(const BoundValues& key, int64* version) {
  return stored_version_.RunForInt64(key.values.data(), key.nulls.data(), version);
}

bool Projection::IsStored(const BoundValues& key) {
  int64 version = 0;
  return FindStored(key, &version);
}

Outcome Projection::Apply(const InboxEvent& event, PayloadJson* payload, bool deletes) {
  return Noted(event, deletes ? Delete(event, payload) : Upsert(event, payload));
}

Outcome Projection::Noted(const InboxEvent& event, Outcome outcome) {
  if (key_has_type_) return outcome;
  if (outcome == Outcome::kApplied) {
    types_->NoteApplied(id_, event);
  } else {
    types_->RequireComparable(id_, event, target_name_, version_column());
  }
  return outcome;
}

// Which code of users may suppress or change a row. The triggers of partitions and of tables that
// inherit are not those of their parent.
Projection::RowCode Projection::RowCodeOf(Oid target) {
  Parameters key;
  key.AddOid(OIDOID, target);
  constexpr char kQuery[] =
      "SELECT t.writes OR o.others, t.deletes OR o.others FROM pg_catalog.pg_class c, "
      "LATERAL (SELECT coalesce(bool_or(g.tgtype & 20 <> 0), false), "
      "coalesce(bool_or(g.tgtype & 8 <> 0), false) FROM pg_catalog.pg_trigger g "
      "WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgtype & 3 = 3) t(writes, deletes), "
      "LATERAL (SELECT c.relhasrules OR c.relhassubclass OR c.relkind <> 'r') o(others) "
      "WHERE c.oid = $1";
  RowCode code;
  if (Run(kQuery, key) > 0) {
    code.writes = BoolColumn(0, 1);
    code.deletes = BoolColumn(0, 2);
  }
  return code;
}

void Projection::ThrowNotWritten(const BoundValues& bound, const InboxEvent& event) {
  int64 stored = 0;
  std::string row = "There is no row with its key";
  if (FindStored(bound, &stored)) {
    row = "The row with its key has version " + std::to_string(stored);
  } else if (OidIsValid(primary_key_) && FindPrimaryKey(bound, &stored)) {
    row = "The row with its key is hidden by a policy";
  }
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "event was not written to " + target_name_,
        row + ", and the event has version " + std::to_string(event.version()) +
            ". A trigger or a policy of the table has suppressed it.",
        "Change the trigger or the policy so that it lets the event through, or let the projection "
        "not take its type.");
}

void Projection::ThrowNotDeleted(const std::string& why) const {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "event did not delete its row from " + target_name_, why,
        "Let the row be deleted. A trigger that keeps deleted rows has to set their version column "
        "to postbox.event_version().");
}

// Runs one of the statements that write the row. Whether it did.
bool Projection::RunWrite(Statement& statement, const InboxEvent& event, const BoundValues& bound) {
  if (statement.Run(bound.values.data(), bound.nulls.data()) == 0) return false;
  if (!code_.writes) return true;
  RequireColumnType(1, INT8OID);
  const int64 stored = Int64Column(0, 1);
  FreeRows();
  if (stored >= event.version()) return true;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "event was not written to " + target_name_,
        "A trigger of the table has left the version column at " + std::to_string(stored) +
            ", and the event has version " + std::to_string(event.version()) + ".",
        "Change the trigger so that it keeps the version of the event.");
}

// Writes the row of the event. False if there is one that is as new. What one statement does not
// see yet, the next one does, so the second UPDATE finds a row that came in between.
bool Projection::Write(const InboxEvent& event, const BoundValues& bound) {
  const bool all = bound.present == all_present_;
  const std::shared_ptr<Statements> statements = all ? full_ : StatementsFor(bound.present);
  int64 stored = 0;
  for (int attempt = 0; !all && attempt < 2; ++attempt) {
    if (RunWrite(statements->update, event, bound)) return true;
    if (!FindStored(bound, &stored)) break;
    if (stored >= event.version()) return false;
    if (attempt == 1) ThrowNotWritten(bound, event);
  }
  if (RunWrite(statements->upsert, event, bound)) return true;
  // ON CONFLICT has locked the row that it did not change.
  const bool there =
      FindStored(bound, &stored) || (OidIsValid(primary_key_) && FindPrimaryKey(bound, &stored));
  if (there && stored >= event.version()) return false;
  ThrowNotWritten(bound, event);
}

// The values of the columns behind the key and the version.
void Projection::BindRest(const InboxEvent& event, PayloadJson* payload, BoundValues* bound) {
  Bind(event, payload, key_size_ + 1, columns_.size(), bound);
  watch_.Note(event.event_type, *payload, bound->fields);
}

bool Projection::TakesSetWith(const InboxEvent& event) const {
  return set_ != nullptr && !keeps_tombstones_ && (key_has_type_ || types_->Knows(event));
}

BoundValues Projection::BindRow(const InboxEvent& event, PayloadJson* payload) {
  CheckVersion(event);
  BoundValues bound = BindKey(event, payload);
  BindRest(event, payload, &bound);
  return bound;
}

Outcome Projection::WriteRow(const InboxEvent& event, const BoundValues& bound) {
  return Noted(event, Write(event, bound) ? Outcome::kApplied : Outcome::kStale);
}

std::vector<bool> Projection::WriteSet(std::span<const BoundValues* const> rows) {
  const uint64 count = set_->Write(rows);
  std::vector<bool> written(rows.size(), count == rows.size());
  uint64 next = count == rows.size() ? count : 0;
  for (size_t i = 0; i < rows.size() && next < count; ++i) {
    const Datum stored = KeyText(set_->WrittenKey(next));
    const Datum key = KeyText(*rows[i]);
    written[i] = Pg([&] { return datum_image_eq(stored, key, false, -1); });
    if (written[i]) ++next;
  }
  FreeRows();
  if (next == count) return written;
  Throw(ERRCODE_INTERNAL_ERROR, "rows of " + target_name_ + " have other keys than were written");
}

Outcome Projection::Upsert(const InboxEvent& event, PayloadJson* payload) {
  CheckVersion(event);
  BoundValues bound = BindKey(event, payload);
  // Before anything else, so that an event that comes too late is not rejected for its content.
  if (keeps_tombstones_ && tombstones_->Find(target_, KeyText(bound)) >= event.version()) {
    return Outcome::kStale;
  }
  BindRest(event, payload, &bound);
  if (!Write(event, bound)) return Outcome::kStale;
  if (!keeps_tombstones_) return Outcome::kApplied;

  const Datum key = KeyText(bound);
  const int64 deleted_at = tombstones_->Find(target_, key);
  if (deleted_at >= event.version()) {
    if (delete_any_.Run(bound.values.data(), bound.nulls.data()) == 0) {
      // A trigger keeps it. The next attempt finds the tombstone first.
      Throw(ERRCODE_T_R_SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent delete",
            "The key of the row in " + target_name_ + " was deleted while it was written.",
            "The transaction might succeed if retried.");
    }
    return Outcome::kStale;
  }
  if (deleted_at > 0) tombstones_->Remove(target_, key);
  return Outcome::kApplied;
}

// A committed row with the key, whatever the transaction's snapshot shows.
bool Projection::FindStoredNow(const BoundValues& key, int64* version) {
  const SPIPlanPtr plan = stored_version_.Plan();
  const bool there = Pg([&] {
    const int result =
        SPI_execute_snapshot(plan, const_cast<Datum*>(key.values.data()), key.nulls.data(),
                             GetLatestSnapshot(), InvalidSnapshot, true, false, 1);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
    return SPI_processed > 0;
  });
  if (there) *version = Int64Column(0, 1);
  FreeRows();
  return there;
}

// A row with the key, committed or not and whatever policies hide. It is locked.
bool Projection::FindPrimaryKey(const BoundValues& key, int64* version) {
  std::vector<SearchColumn> columns;
  for (size_t i = 0; i < key_size_; ++i) {
    columns.push_back({columns_[i].number, columns_[i].type, key.values[i]});
  }
  const Column& stored = columns_[key_size_];
  return DirtyFind(target_, primary_key_, columns, {stored.number, stored.type}, version);
}

// D4 of projection.h: whether there is a row with the key, committed or not.
bool Projection::FindRow(const BoundValues& key, int64* version) {
  if (OidIsValid(primary_key_)) return FindPrimaryKey(key, version);
  Pg([&] { LockRelationOid(target_, ShareRowExclusiveLock); });
  if (FindStoredNow(key, version)) return true;
  if (Pg([&] { return check_enable_rls(target_, InvalidOid, true) == RLS_ENABLED; })) {
    ThrowNotDeleted(
        "No row with its key is seen, but row-level security may hide one, and the key "
        "of the projection is not the primary key of a plain table.");
  }
  return false;
}

// D3 and D4 of projection.h.
Outcome Projection::DeleteUnseen(const InboxEvent& event, const BoundValues& bound, Datum key) {
  if (!tombstones_->Raise(target_, key, event.version())) return Outcome::kStale;
  int64 stored = 0;
  if (!FindRow(bound, &stored)) return Outcome::kApplied;
  const bool older = stored < event.version();
  if (older && delete_older_.Run(bound.values.data(), bound.nulls.data()) > 0) {
    return Outcome::kApplied;
  }
  if (IsolationUsesXactSnapshot() && !IsStored(bound) && FindStoredNow(bound, &stored)) {
    Throw(ERRCODE_T_R_SERIALIZATION_FAILURE, "could not serialize access due to concurrent update",
          "The row to delete from " + target_name_ + " was committed after the transaction began.",
          "The transaction might succeed if retried.");
  }
  if (older) {
    if (!FindStored(bound, &stored)) ThrowNotDeleted("A policy of the table hides the row.");
    if (stored < event.version()) ThrowNotDeleted(KeptAt(stored));
  }
  tombstones_->Remove(target_, key);
  return older ? Outcome::kApplied : Outcome::kStale;
}

Outcome Projection::Delete(const InboxEvent& event, PayloadJson* payload) {
  CheckVersion(event);
  const BoundValues bound = BindKey(event, payload);
  const Datum key = KeyText(bound);
  int64 stored = 0;
  // A trigger that keeps the row moves its version on: then it was not as new before.
  const bool older = code_.deletes && FindStored(bound, &stored) && stored < event.version();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (delete_older_.Run(bound.values.data(), bound.nulls.data()) > 0) {
      tombstones_->Raise(target_, key, event.version());
      return Outcome::kApplied;
    }
    if (!FindStored(bound, &stored)) return DeleteUnseen(event, bound, key);
    if (stored >= event.version()) return older ? Outcome::kApplied : Outcome::kStale;
  }
  ThrowNotDeleted(KeptAt(stored));
}

}  // namespace postbox
