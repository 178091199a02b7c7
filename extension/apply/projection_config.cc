// create_projection, alter_projection and drop_projection.
//
// Only the owner of an inbox configures it, since its projections and handlers run with the owner's
// rights. Whether these suffice is checked here, so that the first event does not fail. A
// transaction that configures an inbox locks its row in postbox.inbox first, so that of two at the
// same time the second sees the conflict.
#include "extension/apply/consumer_names.h"
#include "extension/apply/event_types.h"
#include "extension/apply/inbox_cache.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/active_rebuild.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/registered_names.h"
#include "extension/shared/problem.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"
#include "extension/trust/rights.h"

extern "C" {
#include <storage/lmgr.h>
#include <utils/jsonb.h>
}

namespace postbox {
namespace {

// Two projections of one row must agree on what the row's key is, and on its version, unless each
// counts for itself. A key that is deleted has one version.
void CheckAgainstOthers(Oid inbox, const ProjectionConfig& config,
                        const ProjectionColumns& resolved) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, config.target).Add(INT8OID, Int64GetDatum(config.id));
  const uint64 rows =
      Run("SELECT inbox::oid, name, event_types || delete_types, key, version_column::text, "
          "delete_types <> '{}' FROM postbox.projection WHERE target = $1 AND id <> $2 ORDER BY id",
          parameters);
  std::vector<std::string> types = config.event_types;
  types.insert(types.end(), config.delete_types.begin(), config.delete_types.end());
  const std::vector<std::string> key = resolved.KeyNames();

  for (uint64 row = 0; row < rows; ++row) {
    const std::string other = "projection \"" + TextColumn(row, 2) + "\"";
    if (OidColumn(row, 1) != inbox) {
      Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "table " + resolved.target_name + " is the target of another inbox's projection",
            "It is fed by inbox " + RelationName(OidColumn(row, 1)) +
                ", which stores the keys that were deleted.",
            "Feed both subscriptions into one inbox.");
    }
    const bool deletes = BoolColumn(row, 6) || !config.delete_types.empty();
    if (TextArrayColumn(row, 4) != key ||
        (deletes && TextColumn(row, 5) != config.version_column)) {
      Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "projections of table " + resolved.target_name + " have different keys or versions",
            "In " + other + " they are different.",
            "All projections of a table need the same key. Their version columns may differ only "
            "if none of them deletes.");
    }
    const std::string common = CommonTypes(types, TextArrayColumn(row, 3));
    if (!common.empty()) {
      Throw(ERRCODE_DUPLICATE_OBJECT,
            "event types are already projected onto table " + resolved.target_name,
            "The event types " + common + " belong to " + other + ".",
            "Change or remove that projection first, with postbox.alter_projection or "
            "postbox.drop_projection.");
    }
  }
}

// A time with an offset would lose it in a column that has no time zone.
void WarnOfLostOffsets(const ProjectionColumns& resolved) {
  for (const ProjectionColumn& column : resolved.columns) {
    if (column.source.event_field || column.source.form != ValueForm::kPlain) continue;
    Pg([&] {
      const Oid base = getBaseType(column.type);
      if (base != TIMESTAMPOID && base != DATEOID) return;
      ereport(
          WARNING,
          (errmsg(
               "column \"%s\" of %s is of type %s: the time zone offsets of values are discarded",
               column.name.c_str(), resolved.target_name.c_str(), format_type_be(column.type)),
           errhint("Change its type to timestamptz, or map it with {\"path\": ..., \"as\": "
                   "\"utc\"}, which takes the time or the day in UTC.")));
    });
  }
}

// What is to be stored of `columns`: an object.
std::string ColumnsArgument(Datum columns) {
  if (!Pg([&] { return JB_ROOT_IS_OBJECT(DatumGetJsonbP(columns)) != 0; })) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "columns must be a JSON object", "",
          "Map target columns to JSON fields: {\"title\": \"name\"}.");
  }
  return Pg([&]() -> const char* {
    Jsonb* json = DatumGetJsonbP(columns);
    return JsonbToCString(nullptr, &json->root, VARSIZE(json));
  });
}

bool IsJsonNull(Datum columns) {
  return Pg([&] {
    Jsonb* json = DatumGetJsonbP(columns);
    JsonbValue value;
    return JsonbExtractScalar(&json->root, &value) && value.type == jbvNull;
  });
}

void RequireEventTypes(const ProjectionConfig& config) {
  if (config.event_types.empty() && config.delete_types.empty()) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_types may not be empty");
  }
}

// Throws unless the projection, as it is to be stored, can write its target.
ProjectionColumns Check(Oid inbox, const ProjectionConfig& config) {
  ProjectionColumns resolved = ResolveColumns(config);
  if (Pg([&] { return get_rel_persistence(config.target) == RELPERSISTENCE_TEMP; })) {
    Throw(ERRCODE_INVALID_TABLE_DEFINITION,
          "the target of a projection may not be a temporary table",
          "It is visible in one session only.", "Use a permanent table.");
  }
  RequireTargetRights(RelationOwner(inbox), config.target, resolved.target_name,
                      !config.delete_types.empty());
  CheckAgainstOthers(inbox, config, resolved);
  return resolved;
}

Datum SortedNames(const ProjectionColumns& resolved) {
  std::vector<std::string> writes = resolved.Names();
  std::sort(writes.begin(), writes.end());
  return TextArrayValue(writes);
}

// schema.table, as it is typed into a literal.
std::string SuggestedName(Oid target) {
  return Pg([&]() -> const char* {
    return psprintf("%s.%s", get_namespace_name(get_rel_namespace(target)), get_rel_name(target));
  });
}

void CreateProjection(Oid inbox, ProjectionConfig config, const NullableDatum& columns,
                      const std::optional<std::string>& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  RequireNoRebuildOf(config.target);
  if (!columns.isnull) config.columns = ColumnsArgument(columns.value);
  const ProjectionColumns resolved = Check(inbox, config);
  WarnOfLostOffsets(resolved);

  Parameters row;
  row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, TextArrayValue(config.event_types));
  row.AddOid(REGCLASSOID, config.target);
  columns.isnull ? row.AddNull(JSONBOID) : row.Add(JSONBOID, columns.value);
  row.Add(TEXTARRAYOID, TextArrayValue(resolved.KeyNames())).AddText(config.version_column);
  row.Add(TEXTARRAYOID, TextArrayValue(config.delete_types));
  row.Add(TEXTARRAYOID, SortedNames(resolved));
  InsertNamed("projection", name, SuggestedName(config.target),
              "inbox, event_types, target, columns, key, version_column, delete_types, writes",
              row);
}

ProjectionConfig ReadProjection(const std::string& name) {
  Parameters key;
  key.AddText(name);
  std::vector<ProjectionConfig> configs = ReadProjections(
      "SELECT " + std::string(kProjectionColumns) + " FROM postbox.projection p WHERE name = $1",
      key);
  if (configs.empty()) ThrowUnknownName("projection", name);
  return std::move(configs[0]);
}

// Other fields may be taken now. Those that the events lack are noticed again.
void ForgetMissingFields(int64 id) {
  const Registrar registrar("missing_field");
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  Run("DELETE FROM postbox.missing_field WHERE projection = $1", key);
}

void AlterProjection(FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  const NullableDatum columns = fcinfo->args[2];
  const std::optional<std::string> new_name = OptionalText(fcinfo, 4);
  SpiConnection connection;
  FixedSearchPath search_path;
  const Oid inbox = InboxOf("projection", name);
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  ProjectionConfig config = ReadProjection(name);
  RequireNoRebuildOf(config.target);
  if (HasArgument(fcinfo, 1)) {
    config.event_types = ReadEventTypes(fcinfo->args[1].value, "event_types");
  }
  if (HasArgument(fcinfo, 3)) {
    config.delete_types = ReadEventTypes(fcinfo->args[3].value, "delete_types");
  }
  RequireEventTypes(config);
  if (!columns.isnull) {
    config.columns.reset();
    if (!IsJsonNull(columns.value)) config.columns = ColumnsArgument(columns.value);
    config.chosen = true;
    config.writes.clear();
  }
  const ProjectionColumns resolved = Check(inbox, config);
  if (!columns.isnull) WarnOfLostOffsets(resolved);

  Parameters row;
  row.Add(INT8OID, Int64GetDatum(config.id)).AddTextOrNull(new_name);
  row.Add(TEXTARRAYOID, TextArrayValue(config.event_types));
  row.AddTextOrNull(config.columns);
  row.Add(TEXTARRAYOID, TextArrayValue(config.delete_types));
  row.Add(TEXTARRAYOID, columns.isnull ? TextArrayValue(config.writes) : SortedNames(resolved));
  UpdateNamed("projection", new_name,
              "UPDATE postbox.projection SET name = coalesce($2, name), event_types = $3, "
              "columns = $4::jsonb, delete_types = $5, writes = $6 WHERE id = $1",
              row);
  ForgetMissingFields(config.id);
}

void DropProjection(const std::string& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const Oid inbox = InboxOf("projection", name);
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  RequireNoRebuildOf(ReadProjection(name).target);
  DropNamed("projection", name);
}

// Nothing if the projection is in order, if it does not exist, or if its target is locked: a look
// at the status does not wait.
std::optional<Problem> ProjectionProblem(int64 id) {
  SpiConnection connection;
  FixedSearchPath search_path;
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  std::vector<ProjectionConfig> configs = ReadProjections(
      "SELECT " + std::string(kProjectionColumns) + " FROM postbox.projection p WHERE id = $1",
      key);
  if (configs.empty()) return std::nullopt;
  const Oid target = configs[0].target;
  if (OidIsValid(target) &&
      !Pg([&] { return ConditionalLockRelationOid(target, AccessShareLock); })) {
    return std::nullopt;
  }
  std::optional<Problem> problem;
  try {
    ResolveColumns(configs[0]);
  } catch (const PostgresError& error) {
    if (error.raised_by_postgres) throw;
    problem = {"projection_broken", "error", "projection " + configs[0].name,
               error.message + (error.detail.empty() ? "" : ". " + error.detail), error.hint};
  }
  // A session that looks at the status, and then leaves its transaction open, holds up no other.
  if (OidIsValid(target)) Pg([&] { UnlockRelationOid(target, AccessShareLock); });
  return problem;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(create_projection) {
  using namespace postbox;
  return Guarded([&] {
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    ProjectionConfig config;
    config.event_types = ReadEventTypes(Argument(fcinfo, 1, "event_types"), "event_types");
    config.target = OidArgument(fcinfo, 2, "target");
    if (HasArgument(fcinfo, 4)) {
      config.key = TextArrayArgument(fcinfo->args[4].value, "key");
      if (config.key.empty()) {
        Throw(ERRCODE_INVALID_PARAMETER_VALUE, "key may not be empty", "",
              "NULL takes the primary key.");
      }
    }
    config.version_column = NameStr(*DatumGetName(Argument(fcinfo, 5, "version_column")));
    config.delete_types = ReadEventTypes(Argument(fcinfo, 6, "delete_types"), "delete_types");
    RequireEventTypes(config);
    config.chosen = true;
    CreateProjection(inbox, std::move(config), fcinfo->args[3], OptionalText(fcinfo, 7));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(alter_projection) {
  using namespace postbox;
  return Guarded([&] {
    AlterProjection(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_projection) {
  using namespace postbox;
  return Guarded([&] {
    DropProjection(TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(projection_problem) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    return ProblemResult(fcinfo, ProjectionProblem(DatumGetInt64(Argument(fcinfo, 0, "id"))));
  });
}
