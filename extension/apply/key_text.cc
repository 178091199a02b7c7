// postbox.key_text(target, VARIADIC key): the key of a row of a target, as it is in a tombstone.
#include "extension/apply/projection_key.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"

namespace postbox {
namespace {

// What a call site keeps, for as long as its plan.
struct KeyOfTarget {
  Oid target;
  std::unique_ptr<ProjectionKey> key;
  std::vector<Oid> types;
};

void Forget(void* kept) { delete static_cast<KeyOfTarget*>(kept); }

std::unique_ptr<KeyOfTarget> Resolve(Oid target, MemoryContext context) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, target);
  const std::vector<ProjectionConfig> configs =
      ReadProjections("SELECT " + std::string(kProjectionColumns) +
                          " FROM postbox.projection p WHERE target = $1 ORDER BY id LIMIT 1",
                      parameters);
  if (configs.empty()) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE,
          "\"" + RelationName(target) + "\" is not the target of a projection");
  }
  const ProjectionColumns columns = ResolveColumns(configs[0]);
  auto made = std::make_unique<KeyOfTarget>();
  made->target = target;
  made->key = std::make_unique<ProjectionKey>(columns, context);
  for (size_t i = 0; i < columns.key_size; ++i) made->types.push_back(columns.columns[i].type);
  return made;
}

KeyOfTarget* KeyAt(FunctionCallInfo fcinfo, Oid target) {
  FmgrInfo* function = fcinfo->flinfo;
  auto* kept = static_cast<KeyOfTarget*>(function->fn_extra);
  if (kept != nullptr && kept->target == target) return kept;
  std::unique_ptr<KeyOfTarget> made = Resolve(target, function->fn_mcxt);
  bool fits = static_cast<size_t>(PG_NARGS() - 1) == made->types.size();
  for (size_t i = 0; fits && i < made->types.size(); ++i) {
    fits = get_fn_expr_argtype(function, static_cast<int>(i) + 1) == made->types[i];
  }
  if (!fits) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          "these are not the key columns of \"" + RelationName(target) + "\"");
  }
  auto* callback = static_cast<MemoryContextCallback*>(
      Pg([&] { return MemoryContextAllocZero(function->fn_mcxt, sizeof(MemoryContextCallback)); }));
  callback->func = Forget;
  callback->arg = made.get();
  MemoryContextRegisterResetCallback(function->fn_mcxt, callback);
  kept = made.release();
  function->fn_extra = kept;
  return kept;
}

Datum NullResult(FunctionCallInfo fcinfo) {
  fcinfo->isnull = true;
  return Datum{0};
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(key_text) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const Oid target = OidArgument(fcinfo, 0, "target");
    KeyOfTarget* kept = KeyAt(fcinfo, target);
    BoundValues values(kept->types.size());
    for (size_t i = 0; i < values.values.size(); ++i) {
      const NullableDatum& part = fcinfo->args[i + 1];
      if (part.isnull) return NullResult(fcinfo);
      values.values[i] = part.value;
    }
    return kept->key->Text(values);
  });
}
