#include "extension/emit/mute_changes.h"

#include "extension/base/relation.h"
#include "extension/lifecycle/define_settings.h"
#include "extension/shared/settings.h"

namespace postbox {
namespace {

// What was changed without events in a subtransaction.
struct Muted {
  Oid table;
  std::string name;
  Oid role;  // that has set postbox.mute_changes
  int64 rows;
  bool truncated;
  SubTransactionId in;
};
std::vector<Muted>& muted = *new std::vector<Muted>;
// What is to be logged if the transaction commits.
struct Message {
  std::string text;
  std::string role;  // its name
};
std::vector<Message>& messages = *new std::vector<Message>;

std::string MessageOf(const Muted& change) {
  if (change.truncated) return "table " + change.name + " was truncated without events";
  return std::to_string(change.rows) + (change.rows == 1 ? " row" : " rows") + " of " +
         change.name + (change.rows == 1 ? " was" : " were") + " changed without events";
}

// Before the end of the transaction: what needs memory, or may fail.
void MakeMessages() {
  std::map<std::tuple<Oid, bool, Oid>, Muted> sums;
  for (const Muted& change : muted) {
    const auto [sum, is_new] =
        sums.try_emplace({change.table, change.truncated, change.role}, change);
    if (!is_new) sum->second.rows += change.rows;
  }
  messages.clear();
  for (const auto& [key, sum] : sums) messages.push_back({MessageOf(sum), RoleName(sum.role)});
  muted.clear();
  for (const Message& message : messages) {
    Pg([&] {
      ereport(NOTICE,
              (errmsg("%s", message.text.c_str()), errdetail("postbox.mute_changes is on.")));
    });
  }
}

void MutingTransactionEvent(XactEvent event, void* /*argument*/) {
  switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
      if (!muted.empty()) Guarded([] { MakeMessages(); });
      break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE:
      for (const Message& message : messages) {
        ereport(LOG,
                (errmsg("%s", message.text.c_str()),
                 errdetail("Role \"%s\" has set postbox.mute_changes.", message.role.c_str())));
      }
      messages.clear();
      break;
    case XACT_EVENT_ABORT:
      messages.clear();
      muted.clear();
      break;
    default:
      break;
  }
}

void MutingSubtransactionEvent(SubXactEvent event, SubTransactionId id, SubTransactionId parent,
                               void* /*argument*/) {
  if (event == SUBXACT_EVENT_ABORT_SUB) {
    std::erase_if(muted, [&](const Muted& change) { return change.in == id; });
  } else if (event == SUBXACT_EVENT_COMMIT_SUB) {
    for (Muted& change : muted) {
      if (change.in == id) change.in = parent;
    }
  }
}

void Note(Relation table, int64 rows, bool truncated) {
  static bool watching = false;
  if (!watching) {
    RegisterXactCallback(MutingTransactionEvent, nullptr);
    RegisterSubXactCallback(MutingSubtransactionEvent, nullptr);
    watching = true;
  }
  const SubTransactionId in = GetCurrentSubTransactionId();
  const Oid oid = RelationGetRelid(table);
  const Oid role = OriginOfMute().role;
  for (Muted& change : muted) {
    if (change.table == oid && change.role == role && change.truncated == truncated &&
        change.in == in) {
      change.rows += rows;
      return;
    }
  }
  muted.push_back({oid, RelationName(oid), role, rows, truncated, in});
}

[[noreturn]] void RefuseToMute(Relation table, int sqlstate, const std::string& detail,
                               const std::string& hint) {
  Throw(sqlstate,
        (sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE ? "permission denied to change table "
                                                    : "cannot change table ") +
            RelationName(RelationGetRelid(table)) + " without events",
        "postbox.mute_changes is on. " + detail, hint);
}

void RequireMayMute(Relation table) {
  const MuteOrigin& origin = OriginOfMute();
  if (origin.transaction != CurrentLocalTransaction()) {
    RefuseToMute(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                 "It was set in an earlier transaction, but applies to one transaction only.",
                 "Use SET LOCAL in the transaction. RESET postbox.mute_changes lets the change "
                 "triggers emit again.");
  }
  const char* kEmitHint =
      "To emit the events, run SET LOCAL postbox.mute_changes = off before the change.";
  if (origin.by_function && origin.role != GetUserId()) {
    RefuseToMute(table, ERRCODE_INSUFFICIENT_PRIVILEGE,
                 "A function that ran as role \"" + RoleName(origin.role) + "\" has set it.",
                 "Give that function the clause SET postbox.mute_changes = on instead, which ends "
                 "with it.");
  }
  for (const Oid role : {origin.role, GetUserId()}) {
    if (Pg([&] { return OwnsRelation(RelationGetRelid(table), role); })) continue;
    RefuseToMute(table, ERRCODE_INSUFFICIENT_PRIVILEGE,
                 "Role \"" + RoleName(role) + "\", which " +
                     (role == GetUserId() ? "makes the change" : "has set it") +
                     ", does not own the table.",
                 kEmitHint);
  }
}

}  // namespace

bool MuteChanges(Relation table, int64 rows) {
  if (!settings().mute_changes) return false;
  if (rows == 0) return true;
  RequireMayMute(table);
  Note(table, rows, false);
  return true;
}

bool MuteTruncate(Relation table) {
  if (!settings().mute_changes) return false;
  RequireMayMute(table);
  Note(table, 0, true);
  return true;
}

}  // namespace postbox
