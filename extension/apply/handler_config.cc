// create_handler, alter_handler and drop_handler. As in projection_config.cc, only the owner of an
// inbox configures it, and its row in postbox.inbox is locked first.
#include "extension/apply/consumer_names.h"
#include "extension/apply/event_types.h"
#include "extension/apply/inbox_event.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/registered_names.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"
#include "extension/trust/rights.h"

extern "C" {
#include <utils/regproc.h>
}

namespace postbox {
namespace {

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

// schema.function, as it is typed into a literal.
std::string SuggestedName(Oid function) {
  return Pg([&]() -> const char* {
    return psprintf("%s.%s", get_namespace_name(get_func_namespace(function)),
                    get_func_name(function));
  });
}

void RequireEventTypes(const std::vector<std::string>& types) {
  if (types.empty()) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_types may not be empty");
}

// An event is not handled twice by one function. `except`: the handler that is altered, or empty.
void CheckAgainstOthers(Oid inbox, Datum event_types, const std::string& signature,
                        const std::string& except) {
  Parameters row;
  row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, event_types).AddText(signature).AddText(except);
  if (Run("SELECT name FROM postbox.handler WHERE inbox = $1 AND event_types && $2 AND "
          "function = $3 AND name <> $4 ORDER BY id LIMIT 1",
          row) == 0) {
    return;
  }
  Throw(ERRCODE_DUPLICATE_OBJECT, "event types are already handled by " + signature,
        "Handler \"" + TextColumn(0, 1) + "\" takes some of these event types.",
        "Change or remove that handler first, with postbox.alter_handler or postbox.drop_handler.");
}

void CreateHandler(Oid inbox, const std::vector<std::string>& event_types, Oid function,
                   const std::optional<std::string>& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  CheckHandler(inbox, function);
  const std::string signature = Signature(function);
  CheckAgainstOthers(inbox, TextArrayValue(event_types), signature, "");
  Parameters row;
  row.AddOid(REGCLASSOID, inbox).Add(TEXTARRAYOID, TextArrayValue(event_types));
  row.AddText(signature);
  InsertNamed("handler", name, SuggestedName(function), "inbox, event_types, function", row);
}

void AlterHandler(FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  const std::optional<std::string> new_name = OptionalText(fcinfo, 3);
  SpiConnection connection;
  FixedSearchPath search_path;
  const Oid inbox = InboxOf("handler", name);
  RequireInboxOwner(inbox);
  LockRegistration("inbox", inbox);
  Parameters key;
  key.AddText(name);
  if (Run("SELECT event_types, function FROM postbox.handler WHERE name = $1", key) == 0) {
    ThrowUnknownName("handler", name);
  }
  std::vector<std::string> types = TextArrayColumn(0, 1);
  std::string signature = TextColumn(0, 2);
  if (HasArgument(fcinfo, 1)) types = ReadEventTypes(fcinfo->args[1].value, "event_types");
  RequireEventTypes(types);
  if (HasArgument(fcinfo, 2)) {
    const Oid function = OidArgument(fcinfo, 2, "function");
    CheckHandler(inbox, function);
    signature = Signature(function);
  }
  CheckAgainstOthers(inbox, TextArrayValue(types), signature, name);
  Parameters row;
  row.AddText(name).AddTextOrNull(new_name).Add(TEXTARRAYOID, TextArrayValue(types));
  row.AddText(signature);
  UpdateNamed("handler", new_name,
              "UPDATE postbox.handler SET name = coalesce($2, name), event_types = $3, "
              "function = $4 WHERE name = $1",
              row);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(create_handler) {
  using namespace postbox;
  return Guarded([&] {
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    const std::vector<std::string> types =
        ReadEventTypes(Argument(fcinfo, 1, "event_types"), "event_types");
    const Oid function = OidArgument(fcinfo, 2, "function");
    RequireEventTypes(types);
    CreateHandler(inbox, types, function, OptionalText(fcinfo, 3));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(alter_handler) {
  using namespace postbox;
  return Guarded([&] {
    AlterHandler(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_handler) {
  using namespace postbox;
  return Guarded([&] {
    DropNamed("handler", TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}
