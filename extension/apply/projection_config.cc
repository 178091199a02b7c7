// create_projection, create_handler and their drop functions.
//
// Only the owner of an inbox configures it, since its projections and handlers run with the owner's
// rights. Whether these suffice is checked here, so that the first event does not fail. A
// transaction that configures an inbox locks its row in postbox.inbox first, so that of two at the
// same time the second sees the conflict.
#include "extension/apply/event_types.h"
#include "extension/apply/inbox_cache.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/inbox_registration.h"
#include "extension/shared/problem.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"
#include "extension/trust/rights.h"

extern "C" {
#include <storage/lmgr.h>
#include <utils/regproc.h>
}

namespace postbox {
namespace {

// Two projections of one row must agree on what the row's key is, and on its version, unless each
// counts for itself. A key that is deleted has one version.
void CheckAgainstOthers(Oid inbox, const ProjectionConfig& config,
                        const ProjectionColumns& resolved) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, config.target);
  const uint64 rows =
      Run("SELECT inbox::oid, id::text, event_types || delete_types, key, version_column::text, "
          "delete_types <> '{}' FROM postbox.projection WHERE target = $1 ORDER BY id",
          parameters);
  std::vector<std::string> types = config.event_types;
  types.insert(types.end(), config.delete_types.begin(), config.delete_types.end());
  const std::vector<std::string> key = resolved.KeyNames();

  for (uint64 row = 0; row < rows; ++row) {
    const std::string other = "projection " + TextColumn(row, 2);
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
            other + " has another key or version column.",
            "All projections of a table need the same key. Their version columns may differ only "
            "if none of them deletes.");
    }
    const std::string common = CommonTypes(types, TextArrayColumn(row, 3));
    if (!common.empty()) {
      Throw(ERRCODE_DUPLICATE_OBJECT,
            "event types are already projected onto table " + resolved.target_name,
            other + " takes the event types " + common + ".",
            "Remove that projection first with postbox.drop_projection.");
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

void CreateProjection(Oid inbox, ProjectionConfig config, const NullableDatum& columns) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  if (!columns.isnull) {
    if (!Pg([&] { return JB_ROOT_IS_OBJECT(DatumGetJsonbP(columns.value)) != 0; })) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "columns must be a JSON object", "",
            "Map target columns to JSON fields: {\"title\": \"name\"}.");
    }
    config.columns = Pg([&]() -> const char* {
      Jsonb* json = DatumGetJsonbP(columns.value);
      return JsonbToCString(nullptr, &json->root, VARSIZE(json));
    });
  }
  const ProjectionColumns resolved = ResolveColumns(config);
  if (Pg([&] { return get_rel_persistence(config.target) == RELPERSISTENCE_TEMP; })) {
    Throw(ERRCODE_INVALID_TABLE_DEFINITION,
          "the target of a projection may not be a temporary table",
          "It is visible in one session only.", "Use a permanent table.");
  }
  RequireTargetRights(RelationOwner(inbox), config.target, resolved.target_name,
                      !config.delete_types.empty());
  CheckAgainstOthers(inbox, config, resolved);
  WarnOfLostOffsets(resolved);

  std::vector<std::string> writes = resolved.Names();
  std::sort(writes.begin(), writes.end());
  Parameters row;
  row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, TextArrayValue(config.event_types));
  row.AddOid(REGCLASSOID, config.target);
  columns.isnull ? row.AddNull(JSONBOID) : row.Add(JSONBOID, columns.value);
  row.Add(TEXTARRAYOID, TextArrayValue(resolved.KeyNames())).AddText(config.version_column);
  row.Add(TEXTARRAYOID, TextArrayValue(config.delete_types));
  row.Add(TEXTARRAYOID, TextArrayValue(writes));
  const Registrar registrar("projection");
  Run("INSERT INTO postbox.projection (inbox, event_types, target, columns, key, version_column, "
      "delete_types, writes) VALUES ($1, $2, $3, $4, $5, $6::name, $7, $8)",
      row);
}

// Schema-qualified, e.g. app.add_points(postbox.event); read again at use (LoadHandlers).
std::string Signature(Oid function) {
  return Pg([&]() -> const char* { return format_procedure_qualified(function); });
}

void CheckHandler(Oid inbox, Oid function) {
  HeapTuple tuple = Pg([&] { return SearchSysCache1(PROCOID, ObjectIdGetDatum(function)); });
  if (!HeapTupleIsValid(tuple)) {
    Throw(ERRCODE_UNDEFINED_FUNCTION,
          "function with OID " + std::to_string(function) + " does not exist");
  }
  const Oid event_type = Pg([] { return PostboxType("event"); });
  auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
  const bool fits = form->prokind == PROKIND_FUNCTION && form->pronargs == 1 &&
                    form->proargtypes.values[0] == event_type && form->prorettype == VOIDOID &&
                    !form->proretset;
  ReleaseSysCache(tuple);
  if (!fits) {
    Throw(ERRCODE_INVALID_FUNCTION_DEFINITION,
          "function " + Signature(function) + " cannot be a handler", "",
          "A handler takes one argument of type postbox.event and returns void.");
  }
  RequireHandlerRights(RelationOwner(inbox), function);
}

void CreateHandler(Oid inbox, const std::vector<std::string>& event_types, Oid function) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  CheckHandler(inbox, function);
  const std::string signature = Signature(function);
  Parameters row;
  row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, TextArrayValue(event_types));
  row.AddText(signature);
  if (Run("SELECT id::text FROM postbox.handler WHERE inbox = $1 AND event_types && $2 AND "
          "function = $3 ORDER BY id LIMIT 1",
          row) > 0) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "event types are already handled by " + signature,
          "Handler " + PrintedColumn(0, 1) + " takes some of these event types.",
          "Remove that handler first with postbox.drop_handler.");
  }
  const Registrar registrar("handler");
  Run("INSERT INTO postbox.handler (inbox, event_types, function) VALUES ($1, $2, $3)", row);
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
    problem = {"projection_broken", "error", "projection " + std::to_string(id),
               error.message + (error.detail.empty() ? "" : ". " + error.detail), error.hint};
  }
  // A session that looks at the status, and then leaves its transaction open, holds up no other.
  if (OidIsValid(target)) Pg([&] { UnlockRelationOid(target, AccessShareLock); });
  return problem;
}

// Drops a row of postbox.projection or postbox.handler.
void Drop(const char* table, int64 id) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const std::string name = std::string("postbox.") + table;
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  if (Run("SELECT inbox::oid FROM " + name + " WHERE id = $1", key) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT,
          std::string(table) + " " + std::to_string(id) + " does not exist", "",
          "They are listed in " + name + ".");
  }
  RequireInboxOwner(OidColumn(0, 1));
  const Registrar registrar(table);
  Run("DELETE FROM " + name + " WHERE id = $1", key);
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
    if (config.event_types.empty() && config.delete_types.empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_types may not be empty");
    }
    CreateProjection(inbox, std::move(config), fcinfo->args[3]);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_projection) {
  using namespace postbox;
  return Guarded([&] {
    Drop("projection", DatumGetInt64(Argument(fcinfo, 0, "id")));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(projection_problem) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    return ProblemResult(fcinfo, ProjectionProblem(DatumGetInt64(Argument(fcinfo, 0, "id"))));
  });
}

POSTBOX_FUNCTION(create_handler) {
  using namespace postbox;
  return Guarded([&] {
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    const std::vector<std::string> types =
        ReadEventTypes(Argument(fcinfo, 1, "event_types"), "event_types");
    const Oid function = OidArgument(fcinfo, 2, "function");
    if (types.empty()) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_types may not be empty");
    CreateHandler(inbox, types, function);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_handler) {
  using namespace postbox;
  return Guarded([&] {
    Drop("handler", DatumGetInt64(Argument(fcinfo, 0, "id")));
    return Datum{0};
  });
}
