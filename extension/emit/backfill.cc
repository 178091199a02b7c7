#include "extension/emit/backfill.h"

#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

namespace postbox {

namespace {

Backfill FindBackfill(const std::string& name, const char* lock) {
  Backfill backfill;
  {
    const Registrar registrar("backfill");
    Parameters parameters;
    parameters.AddText(name);
    const uint64 rows = Run(
        std::string("SELECT b.relation::oid, b.outbox::oid, b.owner::oid, b.aggregate_type, "
                    "b.event_type, b.key, coalesce(b.columns, '{}'), b.payload, b.page_key, "
                    "b.page_types, coalesce(b.position, '{}'), coalesce(b.last_key, '{}'), "
                    "CASE WHEN b.state = 'active' AND b.paused_until > clock_timestamp() "
                    "THEN 'paused' ELSE b.state END FROM postbox.backfill b WHERE b.name = $1 ") +
            lock,
        parameters);
    if (rows == 0) {
      Throw(ERRCODE_UNDEFINED_OBJECT, "backfill \"" + name + "\" does not exist", "",
            "Create it with postbox.create_backfill. postbox.backfill_status lists them.");
    }
    backfill = {.name = name,
                .relation = OidColumn(0, 1),
                .outbox = OidColumn(0, 2),
                .owner = OidColumn(0, 3),
                .aggregate_type = TextColumn(0, 4),
                .event_type = TextColumn(0, 5),
                .key = TextArrayColumn(0, 6),
                .columns = TextArrayColumn(0, 7),
                .payload = {},
                .page_key = TextArrayColumn(0, 9),
                .page_types = TextArrayColumn(0, 10),
                .position = TextArrayColumn(0, 11),
                .last_key = TextArrayColumn(0, 12),
                .state = TextColumn(0, 13)};
    if (!IsNull(0, 8)) backfill.payload = TextColumn(0, 8);
  }
  if (RoleName(backfill.owner).empty()) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "the role that created backfill \"" + name + "\" was dropped",
          "A backfill emits with the rights of that role.",
          "Drop it with postbox.drop_backfill, and create another one.");
  }
  if (!MayActFor(backfill.owner, GetUserId())) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for backfill \"" + name + "\"",
          "It was created by role \"" + RoleName(backfill.owner) + "\".",
          "That role, its members and members of postbox_operator may run it.");
  }
  return backfill;
}

}  // namespace

Backfill ReadBackfill(const std::string& name) { return FindBackfill(name, ""); }

Backfill LockBackfill(const std::string& name) { return FindBackfill(name, "FOR UPDATE"); }

void UpdateBackfill(const std::string& name, const std::string& assignments,
                    const std::string& text) {
  const Registrar registrar("backfill");
  Parameters parameters;
  parameters.AddText(name).AddText(text);
  Run("UPDATE postbox.backfill b SET " + assignments + " WHERE b.name = $1", parameters);
}

void NoteWait(const std::string& name, const std::string& cause) {
  const Registrar registrar("backfill");
  Parameters parameters;
  parameters.AddText(name).AddText(cause);
  Run("UPDATE postbox.backfill b SET waits_for = $2 WHERE b.name = $1 "
      "AND b.waits_for IS DISTINCT FROM $2",
      parameters);
}

int64 PositiveTime(Datum interval, const char* name) {
  const int64 microseconds = Microseconds(interval);
  if (microseconds > 0) return microseconds;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " must be positive");
}

}  // namespace postbox
