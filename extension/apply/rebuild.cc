// postbox.rebuild_projection and postbox.cancel_rebuild: the beginning of a rebuild, and its end
// without an effect. rebuild.h has the whole.
#include "extension/apply/rebuild.h"

#include "extension/apply/consumer_names.h"
#include "extension/apply/projection_key.h"
#include "extension/apply/shadow_layout.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/credential.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/registered_names.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"
#include "extension/trust/registrar.h"
#include "extension/trust/rights.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/datum.h>
#include <utils/jsonb.h>
#include <utils/rls.h>
}

namespace postbox {
namespace {

constexpr char kShadowSuffix[] = "_rebuild";
constexpr char kInboxSuffix[] = "_rebuild_inbox";
// What create_inbox appends to the name of an inbox, at most.
constexpr size_t kRoomOfInbox = 18;

struct RebuildArguments {
  std::string projection;
  std::optional<std::string> subscription;
  std::vector<std::string> keys;
  std::string absent;
  bool dry_run;
  std::optional<std::string> source;
};

// The names of what is to be created.
struct Names {
  NewRelation shadow;
  NewRelation inbox;
  std::string subscription;
};

Names NamesFor(Oid target) {
  const std::string schema =
      Pg([&]() -> const char* { return get_namespace_name(get_rel_namespace(target)); });
  std::string name = Pg([&]() -> const char* { return get_rel_name(target); });
  constexpr size_t kLongest = NAMEDATALEN - 1 - (sizeof(kInboxSuffix) - 1) - kRoomOfInbox;
  if (name.size() > kLongest) {
    const std::string number = "_" + std::to_string(target);
    const int room = static_cast<int>(kLongest - number.size());
    const int length = static_cast<int>(name.size());
    name = name.substr(0, Pg([&] { return pg_mbcliplen(name.c_str(), length, room); })) + number;
  }
  Names names{{schema, name + kShadowSuffix}, {schema, name + kInboxSuffix}, ""};
  const std::string full = "rebuild:" + schema + "." + name;
  const int length = static_cast<int>(full.size());
  names.subscription =
      full.substr(0, Pg([&] { return pg_mbcliplen(full.c_str(), length, NAMEDATALEN - 1); }));
  return names;
}

void RequireFree(const NewRelation& relation) {
  if (!OidIsValid(RelationNamed(relation.Qualified()))) return;
  Throw(ERRCODE_DUPLICATE_TABLE, "relation " + relation.Qualified() + " exists already",
        "The rebuild would create a table of this name.", "Rename it, or drop it.");
}

void RequireFreeSubscription(const std::string& name) {
  Parameters key;
  key.AddText(name);
  if (Run("SELECT FROM postbox.subscription s WHERE s.name = $1", key) == 0) return;
  Throw(ERRCODE_DUPLICATE_OBJECT, "subscription \"" + name + "\" exists already",
        "The rebuild would create a subscription of this name.",
        "Remove it with postbox.drop_subscription.");
}

// Each message comes to one of those that pull a subscription: the other one would lose it. One
// name may have the project, and the other one not.
void RequireUnusedPubsub(const std::string& subscription) {
  Parameters key;
  key.AddText(subscription);
  if (Run("SELECT s.name FROM postbox.subscription s WHERE CASE WHEN s.subscription ~ '/' AND $1 ~ "
          "'/' THEN s.subscription = $1 ELSE regexp_replace(s.subscription, '^.*/', '') = "
          "regexp_replace($1, '^.*/', '') END ORDER BY s.name LIMIT 1",
          key) == 0) {
    return;
  }
  Throw(ERRCODE_OBJECT_IN_USE, "Pub/Sub subscription \"" + subscription + "\" is in use",
        "Subscription \"" + TextColumn(0, 1) +
            "\" of this database reads it, and would lose the messages that the rebuild gets.",
        "Create another Pub/Sub subscription on the topic.");
}

void RequireCanRebuild(const RebuildArguments& arguments, Oid owner, const ShadowLayout& layout,
                       const std::vector<ProjectionConfig>& projections) {
  const Oid target = layout.target();
  bool deletes = arguments.absent == "delete";
  for (const ProjectionConfig& config : projections) {
    deletes = deletes || !config.delete_types.empty();
    if (config.marks.empty()) continue;
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "projection \"" + config.name + "\" belongs to a rebuild");
  }
  RequireTargetRights(owner, target, layout.target_name(), deletes);
  const Oid schema = Pg([&] { return get_rel_namespace(target); });
  if (Pg([&] { return SchemaAclCheck(schema, owner, ACL_CREATE) != ACLCHECK_OK; })) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
          "permission denied for the schema of " + layout.target_name(),
          "The rebuild creates tables there, with the rights of the inbox's owner, role \"" +
              RoleName(owner) + "\".",
          "Grant the role CREATE on the schema, and revoke it when the rebuild has ended.");
  }
  if (Pg([&] { return check_enable_rls(target, owner, true) == RLS_ENABLED; })) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "row-level security of " + layout.target_name() + " applies to role \"" +
              RoleName(owner) + "\"",
          "The rebuild would not see the rows that policies hide from the inbox's owner.",
          "Give the role BYPASSRLS for the time of the rebuild.");
  }
}

// Throws if a key cannot be one of the target.
void CheckKeys(const std::vector<std::string>& keys, const ProjectionConfig& projection) {
  const ProjectionKey key(ResolveColumns(projection), CurrentMemoryContext);
  for (const std::string& text : keys) key.FromText(text);
}

// To name a Pub/Sub subscription takes a separate right, and so does the credential of the live
// one.
void RequireRightToPull(Oid inbox) {
  if (Run("SELECT FROM pg_proc p WHERE p.oid = to_regproc('postbox.create_subscription') "
          "AND has_function_privilege(p.oid, 'EXECUTE')") == 0) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
          "permission denied for function postbox.create_subscription",
          "A rebuild from a Pub/Sub subscription creates a subscription.",
          "Grant EXECUTE on the function to the role.");
  }
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
  if (Run("SELECT max(s.credential) FROM postbox.subscription s WHERE s.inbox = $1 "
          "HAVING count(*) = 1 AND max(s.credential) <> ''",
          key) > 0) {
    RequireCredential(TextColumn(0, 1));
  }
}

// Like the only one of the live inbox; with the defaults if there are several. Whatever fails is
// tried again: what is given up would be missing in the target.
void InsertSubscription(const Names& names, Oid live, Oid inbox, const std::string& subscription) {
  const Registrar registrar("subscription");
  Parameters row;
  row.AddText(names.subscription).AddOid(REGCLASSOID, inbox).AddText(subscription);
  row.AddOid(REGCLASSOID, live);
  Run("INSERT INTO postbox.subscription (name, inbox, subscription, on_error) "
      "VALUES ($1, $2, $3, 'nack')",
      row);
  Run("UPDATE postbox.subscription AS n SET max_outstanding_messages = s.max_outstanding_messages, "
      "max_outstanding_bytes = s.max_outstanding_bytes, appliers = s.appliers, "
      "batch_size = s.batch_size, batch_delay = s.batch_delay, min_backoff = s.min_backoff, "
      "max_backoff = s.max_backoff, statement_timeout = s.statement_timeout, "
      "lock_timeout = s.lock_timeout, credential = s.credential FROM postbox.subscription s "
      "WHERE n.name = $1 AND n.inbox = $2 AND n.subscription = $3 AND s.inbox = $4 "
      "AND (SELECT count(*) FROM postbox.subscription o WHERE o.inbox = $4) = 1",
      row);
}

// Roles that apply events to the live inbox may apply them here.
void GrantLike(Oid live, const std::string& inbox) {
  Parameters key;
  key.AddOid(OIDOID, live);
  const uint64 rows =
      Run("SELECT format('GRANT %s ON %%s TO %s', a.privilege_type, CASE a.grantee WHEN 0 THEN "
          "'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END) FROM pg_class c, "
          "aclexplode(c.relacl) a WHERE c.oid = $1 AND a.grantee <> c.relowner "
          "AND a.privilege_type IN ('SELECT', 'INSERT')",
          key);
  for (const std::string& grant : TextColumns(rows, 1)) {
    const size_t at = grant.find("%s");
    Run(grant.substr(0, at) + inbox + grant.substr(at + 2));
  }
}

void InsertProjections(const std::vector<ProjectionConfig>& projections, const ShadowLayout& layout,
                       const Names& names, Oid inbox, Oid shadow) {
  for (size_t i = 0; i < projections.size(); ++i) {
    const ProjectionConfig& config = projections[i];
    Parameters row;
    row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, TextArrayValue(config.event_types));
    row.AddOid(REGCLASSOID, shadow);
    config.columns.has_value()
        ? row.Add(JSONBOID, Pg([&] {
                    return DirectFunctionCall1(jsonb_in, CStringGetDatum(config.columns->c_str()));
                  }))
        : row.AddNull(JSONBOID);
    row.Add(TEXTARRAYOID, TextArrayValue(config.key)).AddText(config.version_column);
    row.Add(TEXTARRAYOID, TextArrayValue(config.delete_types));
    row.Add(TEXTARRAYOID, TextArrayValue(config.writes));
    row.Add(TEXTARRAYOID, TextArrayValue(layout.Marks(i).Stored()));
    InsertNamed("projection", std::nullopt, names.shadow.schema + "." + names.shadow.name,
                "inbox, event_types, target, columns, key, version_column, delete_types, writes, "
                "marks",
                row);
  }
}

// Rows of transactions that run when the rebuild begins count as written since. With the locks of
// DDL this transaction has its own number already, so later ones have greater numbers.
constexpr char kStartXid[] =
    "(SELECT (pg_current_xact_id()::text::bigint - coalesce(max(o.older), 0))::text::xid8 FROM "
    "(SELECT a.backend_xid AS xid FROM pg_stat_activity a WHERE a.datname = current_database() "
    "UNION ALL SELECT p.transaction FROM pg_prepared_xacts p WHERE p.database = "
    "current_database()) x CROSS JOIN LATERAL (SELECT mod(pg_current_xact_id()::text::bigint + "
    "4294967296 - x.xid::text::bigint, 4294967296) AS older) o WHERE o.older < 2147483648)";

void InsertRow(const RebuildArguments& arguments, const Names& names, Oid inbox, Oid target,
               Oid shadow, Oid shadow_inbox) {
  const Registrar registrar("rebuild");
  Parameters row;
  row.AddOid(REGCLASSOID, target).AddText(arguments.projection).AddOid(REGCLASSOID, inbox);
  row.AddOid(REGCLASSOID, shadow).AddOid(REGCLASSOID, shadow_inbox);
  row.AddTextOrNull(arguments.subscription.has_value() ? std::optional(names.subscription)
                                                       : std::nullopt);
  row.AddTextOrNull(arguments.source);
  if (arguments.keys.empty()) {
    row.AddNull(TEXTARRAYOID);
  } else {
    row.Add(TEXTARRAYOID, TextArrayValue(arguments.keys));
  }
  row.AddText(arguments.absent);
  Run("DELETE FROM postbox.rebuild WHERE target = $1 OR projection = $2", row);
  Run("INSERT INTO postbox.rebuild (target, projection, inbox, shadow, shadow_inbox, "
      "subscription, source, keys, absent, home, start_xid) VALUES ($1, $2, $3, $4, $5, $6, $7, "
      "$8, $9, postbox.this_database(), " +
          std::string(kStartXid) + ")",
      row);
}

void Create(const RebuildArguments& arguments, const Names& names, Oid inbox,
            const ShadowLayout& layout, const std::vector<ProjectionConfig>& projections) {
  const Oid owner = RelationOwner(inbox);
  Oid shadow = InvalidOid, shadow_inbox = InvalidOid;
  {
    const ActAs act_as(owner, TrustIn(owner));
    Run(layout.CreateTable(names.shadow.Qualified()));
    shadow = RelationNamed(names.shadow.Qualified());
    Parameters live;
    live.AddOid(REGCLASSOID, inbox);
    Run("SELECT retention FROM postbox.inbox WHERE relation = $1", live);
    shadow_inbox = CreateInbox(
        names.inbox, Pg([&] { return datumCopy(DatumColumn(0, 1), false, sizeof(Interval)); }));
    GrantLike(inbox, names.inbox.Qualified());
    Run("COMMENT ON TABLE " + names.shadow.Qualified() +
        " IS 'What a rebuild makes its target of (postbox.rebuild)'");
  }
  InsertProjections(projections, layout, names, shadow_inbox, shadow);
  if (arguments.subscription.has_value()) {
    InsertSubscription(names, inbox, shadow_inbox, *arguments.subscription);
  }
  InsertRow(arguments, names, inbox, layout.target(), shadow, shadow_inbox);
}

void RequireNoActive(const RebuildArguments& arguments, Oid target) {
  const Registrar registrar("rebuild");
  Parameters key;
  key.AddOid(REGCLASSOID, target);
  if (Run("SELECT FROM postbox.rebuild WHERE target = $1 AND state = 'active'", key) == 0) return;
  Throw(ERRCODE_OBJECT_IN_USE,
        "projection \"" + arguments.projection + "\" is being rebuilt already",
        "One rebuild at a time is made of a target.",
        "Wait for its end, or run SELECT postbox.cancel_rebuild(" +
            NameLiteral(arguments.projection) + ").");
}

void RebuildProjection(FunctionCallInfo fcinfo, const RebuildArguments& arguments) {
  if (arguments.subscription.has_value()) CheckSubscription(*arguments.subscription);
  const Oid inbox = InboxOf("projection", arguments.projection);
  RequireRebuilder(inbox);
  LockRegistration("inbox", inbox);
  if (arguments.subscription.has_value()) RequireRightToPull(inbox);
  Parameters key;
  key.AddText(arguments.projection);
  std::vector<ProjectionConfig> projections = ReadProjections(
      "SELECT " + std::string(kProjectionColumns) + " FROM postbox.projection p WHERE name = $1",
      key);
  if (projections.empty()) ThrowUnknownName("projection", arguments.projection);
  if (OidIsValid(projections[0].target)) projections = ProjectionsOf(projections[0].target);
  RequireNoActive(arguments, projections[0].target);
  const ShadowLayout layout(projections);
  RequireCanRebuild(arguments, RelationOwner(inbox), layout, projections);
  CheckKeys(arguments.keys, projections[0]);
  const Names names = NamesFor(layout.target());
  RequireFree(names.shadow);
  RequireFree(names.inbox);
  RequireFreeSubscription(names.subscription);
  if (arguments.subscription.has_value()) RequireUnusedPubsub(*arguments.subscription);
  int64 count = 0;
  if (arguments.dry_run) {
    const Oid owner = RelationOwner(inbox);
    const ActAs act_as(owner, TrustIn(owner));
    Run("SELECT count(*) FROM " + layout.target_name());
    count = Int64Column(0, 1);
  } else {
    Create(arguments, names, inbox, layout, projections);
  }
  Parameters row;
  row.AddText(names.shadow.Qualified()).AddText(names.inbox.Qualified());
  row.AddTextOrNull(arguments.subscription.has_value() ? std::optional(names.subscription)
                                                       : std::nullopt);
  arguments.dry_run ? row.Add(INT8OID, Int64GetDatum(count)) : row.AddNull(INT8OID);
  ReturnRows(fcinfo, Run("SELECT $1, $2, $3, $4", row));
}

// An operator's `postbox pull --rebuild` deletes it with rights that the owner of the inbox lacks.
void RequireCanNamePubsub(const Rebuild& rebuild, const std::string& subscription) {
  RequireRightToPull(rebuild.inbox);
  Parameters name;
  name.AddText(subscription);
  Run("SELECT $1 ~ '\\.rebuild-[0-9a-f]{8}$'", name);
  if (BoolColumn(0, 1)) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        "Pub/Sub subscription \"" + subscription + "\" was not created for a rebuild", "",
        "Its name would end with .rebuild- and eight hexadecimal digits.");
}

void CancelRebuild(const std::string& projection, const std::optional<std::string>& reason) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const Rebuild rebuild = LockRebuild(projection);
  DropShadow(rebuild);
  Parameters more;
  more.AddTextOrNull(reason);
  UpdateRebuild(rebuild,
                "state = 'cancelled', reason = $2, shadow = 0, shadow_inbox = 0, "
                "waits_for = NULL, ended_at = clock_timestamp()",
                more);
}

}  // namespace
}  // namespace postbox

// (projection text, subscription text, keys text[], absent text, dry_run boolean, source text)
POSTBOX_FUNCTION(rebuild_projection) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    RebuildArguments arguments;
    arguments.projection = TextArgument(fcinfo, 0, "projection");
    arguments.subscription = OptionalText(fcinfo, 1);
    if (HasArgument(fcinfo, 2)) {
      arguments.keys = TextArrayArgument(fcinfo->args[2].value, "keys");
      if (arguments.keys.empty()) {
        Throw(ERRCODE_INVALID_PARAMETER_VALUE, "keys may not be empty", "", "NULL means all keys.");
      }
    }
    arguments.absent = TextArgument(fcinfo, 3, "absent");
    if (arguments.absent != "keep" && arguments.absent != "delete") {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "invalid absent \"" + arguments.absent + "\"", "",
            "It is keep or delete.");
    }
    arguments.dry_run = DatumGetBool(Argument(fcinfo, 4, "dry_run"));
    arguments.source = OptionalText(fcinfo, 5);
    const SpiConnection connection;
    const FixedSearchPath search_path;
    PinSettings();
    RebuildProjection(fcinfo, arguments);
    return Datum{0};
  });
}

// (projection text, what text, value text)
POSTBOX_FUNCTION(note_rebuild) {
  using namespace postbox;
  return Guarded([&] {
    const std::string what = TextArgument(fcinfo, 1, "what");
    const SpiConnection connection;
    const FixedSearchPath search_path;
    const Rebuild rebuild = FindRebuild(TextArgument(fcinfo, 0, "projection"));
    Parameters more;
    more.AddTextOrNull(OptionalText(fcinfo, 2));
    if (what == "error") {
      UpdateRebuild(rebuild,
                    "last_error = left($2, 500), last_error_at = CASE WHEN $2 IS NOT NULL THEN "
                    "clock_timestamp() END",
                    more);
    } else {
      if (HasArgument(fcinfo, 2)) RequireCanNamePubsub(rebuild, TextArgument(fcinfo, 2, "value"));
      UpdateRebuild(rebuild, "pubsub_subscription = $2", more);
    }
    return Datum{0};
  });
}

POSTBOX_FUNCTION(cancel_rebuild) {
  using namespace postbox;
  return Guarded([&] {
    CancelRebuild(TextArgument(fcinfo, 0, "projection"), OptionalText(fcinfo, 1));
    return Datum{0};
  });
}
