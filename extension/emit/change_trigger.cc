#include "extension/emit/change_trigger.h"

#include "extension/base/arguments.h"
#include "extension/base/relation.h"

extern "C" {
#include <utils/fmgroids.h>
#include <utils/inval.h>
}

namespace postbox {
namespace {

constexpr int kMinArguments = 2;

constexpr char kArgumentsHint[] =
    "EXECUTE FUNCTION postbox.emit_changes(aggregate_type, key [, outbox [, columns [, "
    "event_prefix]]]); postbox.create_change_triggers creates such triggers.";

// A name, or an array of names.
std::vector<std::string> Names(const std::string& argument, const char* name) {
  if (argument.empty()) return {};
  if (argument[0] != '{') return {argument};
  const Datum array = Pg([&] {
    return OidInputFunctionCall(F_ARRAY_IN, const_cast<char*>(argument.c_str()), TEXTOID, -1);
  });
  return TextArrayArgument(array, name);
}

// The name has a schema: the search_path of the changing session does not say where its
// changes go.
Oid FindNamedOutbox(const std::string& name) {
  bool has_schema = false;
  const Oid relation = Pg([&] {
    List* names = textToQualifiedNameList(cstring_to_text(name.c_str()));
    has_schema = list_length(names) > 1;
    return has_schema ? RangeVarGetRelid(makeRangeVarFromNameList(names), NoLock, true)
                      : InvalidOid;
  });
  if (!has_schema) {
    Throw(ERRCODE_INVALID_NAME, "outbox \"" + name + "\" is named without its schema",
          "An argument of the trigger that calls emit_changes() names it.",
          "Use schema and name, such as app.outbox.");
  }
  if (OidIsValid(relation)) return relation;
  Throw(ERRCODE_UNDEFINED_TABLE, "outbox \"" + name + "\" does not exist",
        "An argument of the trigger that calls emit_changes() names it.",
        "If it was renamed, create the triggers again with postbox.drop_change_triggers and "
        "postbox.create_change_triggers.");
}

struct KnownTrigger {
  std::shared_ptr<ChangeTrigger> trigger;
  Oid table;
  bool stale;
};

// By the OIDs of the triggers. Never destroyed: invalidation callbacks come until the process ends.
std::unordered_map<Oid, KnownTrigger>& entries = *new std::unordered_map<Oid, KnownTrigger>;

uint64 messages = 0;

// Callbacks run wherever a lock is taken, so this only sets marks.
void TableChanged(Datum /*argument*/, Oid table) {
  ++messages;
  for (auto& [trigger, entry] : entries) {
    if (table == InvalidOid || table == entry.table) entry.stale = true;
    entry.trigger->ForgetOutbox(table);
  }
}

void SchemasChanged(Datum /*argument*/, int /*cache*/, uint32 /*hash*/) {
  ++messages;
  for (auto& [trigger, entry] : entries) entry.trigger->ForgetOutbox(InvalidOid);
}

void WatchTables() {
  static bool watching = false;
  if (watching) return;
  Pg([] {
    CacheRegisterRelcacheCallback(TableChanged, Datum{0});
    CacheRegisterSyscacheCallback(NAMESPACEOID, SchemasChanged, Datum{0});
  });
  watching = true;
}

}  // namespace

ChangeTrigger::ChangeTrigger(const TriggerData& trigger) {
  const Trigger& called = *trigger.tg_trigger;
  if (called.tgnargs < kMinArguments || called.tgnargs > static_cast<int>(kMaxArguments)) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "emit_changes() has " + std::to_string(called.tgnargs) + " arguments in trigger " +
              Quoted(called.tgname),
          "It takes two to five.", kArgumentsHint);
  }
  std::copy_n(called.tgargs, called.tgnargs, arguments_.begin());
  const auto& [aggregate_type, key_names, outbox, column_names, event_prefix] = arguments_;
  const std::vector<std::string> key = Names(key_names, "key");
  if (aggregate_type.empty() || key.empty()) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          std::string(aggregate_type.empty() ? "aggregate_type" : "key") +
              " may not be empty in trigger " + Quoted(called.tgname),
          "", kArgumentsHint);
  }
  format_.emplace(trigger.tg_relation, key, Names(column_names, "columns"));
  const std::string& prefix = event_prefix.empty() ? aggregate_type : event_prefix;
  const auto lasting = [&](const std::string& text) {
    const Datum datum = memory_.Pg([&] { return CStringGetTextDatum(text.c_str()); });
    return Text{datum, View(datum)};
  };
  aggregate_type_ = lasting(aggregate_type);
  schema_version_ = lasting("v1");
  event_types_ = {lasting(prefix + ".created"), lasting(prefix + ".updated"),
                  lasting(prefix + ".deleted")};
}

Oid ChangeTrigger::outbox() {
  if (arguments_[2].empty()) return InvalidOid;
  // To look the name up asks for this right, too.
  if (OidIsValid(outbox_) && Pg([&] {
        return SchemaAclCheck(schema_of_outbox_, GetUserId(), ACL_USAGE) == ACLCHECK_OK;
      })) {
    return outbox_;
  }
  const uint64 before = messages;
  const Oid found = FindNamedOutbox(arguments_[2]);
  const Oid schema = Pg([&] { return get_rel_namespace(found); });
  // A message that arrived meanwhile may be about it.
  outbox_ = messages == before ? found : InvalidOid;
  schema_of_outbox_ = schema;
  return found;
}

bool ChangeTrigger::HasArguments(const Trigger& trigger) const {
  for (int i = 0; i < static_cast<int>(kMaxArguments); ++i) {
    if (arguments_[i] != (i < trigger.tgnargs ? trigger.tgargs[i] : "")) return false;
  }
  return trigger.tgnargs <= static_cast<int>(kMaxArguments);
}

std::shared_ptr<ChangeTrigger> FindChangeTrigger(const TriggerData& trigger) {
  WatchTables();
  const Oid id = trigger.tg_trigger->tgoid;
  const Oid table = RelationGetRelid(trigger.tg_relation);
  const auto found = entries.find(id);
  if (found != entries.end() && !found->second.stale && found->second.table == table &&
      found->second.trigger->HasArguments(*trigger.tg_trigger)) {
    return found->second.trigger;
  }
  std::erase_if(entries, [](const auto& entry) { return entry.second.stale; });
  auto made = std::make_shared<ChangeTrigger>(trigger);
  entries[id] = {made, table, false};
  return made;
}

}  // namespace postbox
