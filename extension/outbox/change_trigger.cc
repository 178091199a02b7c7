#include "extension/outbox/change_trigger.h"

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
    "event_prefix]]]); postbox.create_change_triggers makes such triggers.";

// A name, or an array of names.
std::vector<std::string> Names(const std::string& argument, const char* name) {
  if (argument.empty()) return {};
  if (argument[0] != '{') return {argument};
  const Datum array = Pg([&] {
    return OidInputFunctionCall(F_ARRAY_IN, const_cast<char*>(argument.c_str()), TEXTOID, -1);
  });
  return TextArrayArgument(array, name);
}

struct KnownTrigger {
  std::shared_ptr<ChangeTrigger> trigger;
  Oid table;
  bool stale;
};

// By the OIDs of the triggers. Never destroyed: invalidation callbacks come until the process ends.
std::unordered_map<Oid, KnownTrigger>& entries = *new std::unordered_map<Oid, KnownTrigger>;

// Callbacks run wherever a lock is taken, so this only sets marks.
void TableChanged(Datum /*argument*/, Oid table) {
  for (auto& [trigger, entry] : entries) {
    if (table == InvalidOid || table == entry.table) entry.stale = true;
  }
}

void WatchTables() {
  static bool watching = false;
  if (watching) return;
  Pg([] { CacheRegisterRelcacheCallback(TableChanged, Datum{0}); });
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
