#include "extension/apply/field_watch.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

constexpr int kMillisecondsBetweenLooks = 1000;
constexpr int kMillisecondsOfRest = 60'000;
// How often the clock is read: once in so many events.
constexpr uint32 kEventsOfRest = 64;

// Names that differ only in this are taken for one: display_name, displayName, Display-Name.
std::string Simplified(std::string_view name) {
  std::string simplified;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    simplified += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return simplified;
}

// The name of a member of an object that is like `name`. Empty if there is none.
std::string SimilarMember(std::string_view object, std::string_view name) {
  const std::string wanted = Simplified(name);
  json::Scanner scanner(object.substr(1));
  for (json::ObjectMember member; json::NextMember(&scanner, &member);) {
    if (!member.escaped && Simplified(member.name) == wanted) return std::string(member.name);
  }
  return "";
}

// Whether every database has the characters of the name.
bool IsSayable(std::string_view name) {
  if (GetDatabaseEncoding() == PG_UTF8) return true;
  return std::none_of(name.begin(), name.end(), [](char c) { return IS_HIGHBIT_SET(c); });
}

// What the path is like in this payload, in UTF-8.
std::string SimilarPath(std::string_view payload, const std::vector<std::string>& path) {
  std::string similar, prefix;
  std::vector<std::string> parent;
  for (const std::string& name : path) {
    json::Value object{json::Kind::kObject, payload, 0};
    if (!parent.empty()) {
      json::Paths paths;
      paths.Add(parent);
      std::vector<json::Value> values;
      json::MemberSearch(paths, payload, &values).Run();
      object = values[0];
    }
    if (object.kind != json::Kind::kObject) return "";
    const size_t begin = object.text.find('{');
    const std::string found = SimilarMember(object.text.substr(begin), name);
    if (found.empty() || !IsSayable(found)) return "";
    similar += (similar.empty() ? "" : ".") + found;
    prefix += (prefix.empty() ? "" : ".") + name;
    parent.push_back(found);
  }
  return similar == prefix ? "" : similar;
}

bool TableIsThere() {
  return Pg([] {
    const Oid schema = get_namespace_oid("postbox", true);
    return OidIsValid(schema) && OidIsValid(get_relname_relid("missing_field", schema));
  });
}

bool Passed(TimestampTz since, int milliseconds) {
  return TimestampDifferenceExceeds(since, GetCurrentTimestamp(), milliseconds);
}

}  // namespace

void FieldWatch::Add(const std::string& column, std::vector<std::string> path, size_t place,
                     bool in_doubt) {
  fields_.push_back({column, std::move(path), place, in_doubt});
}

void FieldWatch::Note(std::string_view event_type, PayloadJson& payload,
                      const std::vector<json::Value>& fields) {
  if (fields_.empty() || fields.empty()) return;
  auto found = types_.find(event_type);
  if (found == types_.end()) found = types_.emplace(std::string(event_type), Type()).first;
  Type& type = found->second;
  type.since.resize(fields_.size());
  if (type.events < kEvents) ++type.events;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields[fields_[i].place].kind != json::Kind::kAbsent) {
      type.since[i] = 0;
      changed_ = changed_ || fields_[i].reported;
    } else if (type.since[i] < kEvents && ++type.since[i] == kEvents) {
      changed_ = changed_ || !fields_[i].reported;
    }
  }
  const bool rested = ++events_ % kEventsOfRest == 0;
  if (!changed_ && !rested) return;
  const bool due = changed_ ? Passed(changed_look_at_, kMillisecondsBetweenLooks)
                            : Passed(looked_at_, kMillisecondsOfRest);
  if (!due) return;
  // Statements of these isolation levels fail where others have written.
  if (IsolationUsesXactSnapshot() || !TableIsThere()) return;
  Look(Pg([&] { return payload.Text(); }));
}

// By the events of this session.
bool FieldWatch::WasSeen(size_t field) const {
  return std::any_of(types_.begin(), types_.end(), [&](const auto& entry) {
    const Type& type = entry.second;
    return field < type.since.size() && type.since[field] < type.events;
  });
}

bool FieldWatch::IsMissing(size_t field) const {
  const bool in_none = std::any_of(types_.begin(), types_.end(), [&](const auto& entry) {
    return field < entry.second.since.size() && entry.second.since[field] == kEvents;
  });
  return in_none && !WasSeen(field);
}

void FieldWatch::Look(std::string_view payload) {
  looked_at_ = GetCurrentTimestamp();
  if (changed_) changed_look_at_ = looked_at_;
  changed_ = false;
  const Registrar registrar("projection");
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(projection_));
  const uint64 rows =
      Run("SELECT column_name FROM postbox.missing_field WHERE projection = $1", key);
  const std::vector<std::string> listed = TextColumns(rows, 1);
  for (size_t i = 0; i < fields_.size(); ++i) {
    Field& field = fields_[i];
    field.reported = std::find(listed.begin(), listed.end(), field.column) != listed.end();
    if (field.reported && WasSeen(i)) Withdraw(&field);
    if (field.reported || !IsMissing(i)) continue;
    std::vector<std::string> missing_of;
    for (const auto& [name, type] : types_) {
      if (type.since[i] == kEvents) missing_of.push_back(name);
    }
    const std::string similar = SimilarPath(payload, field.path);
    if (!similar.empty() || !field.in_doubt) Report(&field, missing_of, similar);
  }
}

void FieldWatch::Report(Field* field, const std::vector<std::string>& types,
                        const std::string& similar) {
  std::string path;
  for (const std::string& name : field->path) path += (path.empty() ? "" : ".") + name;
  Parameters row;
  row.Add(INT8OID, Int64GetDatum(projection_)).AddText(field->column);
  row.AddText(Pg([&]() -> const char* { return ServerText(path); }));
  row.Add(TEXTARRAYOID, TextArrayValue(types));
  similar.empty() ? row.AddNull(TEXTOID)
                  : row.AddText(Pg([&]() -> const char* { return ServerText(similar); }));
  const uint64 written =
      Run("INSERT INTO postbox.missing_field (projection, column_name, field, event_types, "
          "similar_field) SELECT p.id, $2, $3, $4, $5 FROM postbox.projection p WHERE p.id = $1 "
          "FOR NO KEY UPDATE SKIP LOCKED ON CONFLICT DO NOTHING",
          row);
  field->reported = written > 0;
}

void FieldWatch::Withdraw(Field* field) {
  Parameters row;
  row.Add(INT8OID, Int64GetDatum(projection_)).AddText(field->column);
  const uint64 removed =
      Run("WITH mine AS (SELECT id FROM postbox.projection WHERE id = $1 FOR NO KEY UPDATE SKIP "
          "LOCKED) DELETE FROM postbox.missing_field m USING mine "
          "WHERE m.projection = mine.id AND m.column_name = $2",
          row);
  field->reported = removed == 0;
}

}  // namespace postbox
