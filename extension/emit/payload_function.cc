#include "extension/emit/payload_function.h"

#include "extension/base/message_bytes.h"
#include "extension/emit/emit.h"

extern "C" {
#include <executor/executor.h>
}

namespace postbox {
namespace {

[[noreturn]] void ThrowMisfit(const std::string& signature, const std::string& detail) {
  Throw(ERRCODE_INVALID_FUNCTION_DEFINITION,
        "function " + signature + " cannot make the payloads of a backfill", detail,
        "Create it again, or cancel the backfill and create another one.");
}

}  // namespace

PayloadFunction::PayloadFunction(const std::string& signature, Relation table)
    : signature_(signature) {
  Parameters parameters;
  parameters.AddText(signature).AddOid(OIDOID, table->rd_rel->reltype);
  const uint64 rows =
      Run("SELECT format('%I.%I', n.nspname, p.proname) FROM pg_proc p "
          "JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = to_regprocedure($1) "
          "AND p.prokind = 'f' AND p.pronargs = 1 AND p.proargtypes[0] = $2",
          parameters);
  if (rows == 0) {
    Throw(ERRCODE_UNDEFINED_FUNCTION, "function " + signature + " does not exist",
          "It makes the payloads of a backfill.",
          "Create it again, or cancel the backfill and create another one.");
  }
  call_ = Statement("SELECT " + TextColumn(0, 1) + "($1)", {table->rd_rel->reltype});
}

Datum PayloadFunction::Call(TupleTableSlot* row) {
  const MemoryContext memory = CurrentMemoryContext;
  const Datum value = Pg([&] { return ExecFetchSlotHeapTupleDatum(row); });
  const uint64 rows = call_.Run({value});
  MemoryContextSwitchTo(memory);
  if (rows != 1) ThrowMisfit(signature_, "It returned a set, and must return one value.");
  // Of this call: the function may have been replaced meanwhile.
  const Oid type = Pg([&] { return SPI_gettypeid(SPI_tuptable->tupdesc, 1); });
  if (type != JSONOID && type != JSONBOID && type != BYTEAOID && type != TEXTOID) {
    ThrowMisfit(signature_, "It must return json, jsonb, bytea, or text that is JSON.");
  }
  bool null = false;
  const Datum result = DatumColumn(0, 1, &null);
  if (null) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "function " + signature_ + " returned null",
          "It makes the payloads of a backfill: each row has an event.",
          "Return a payload for each row. A STRICT function returns null for a null argument.");
  }
  const Datum copy = Pg([&] { return PointerGetDatum(PG_DETOAST_DATUM_COPY(result)); });
  FreeRows();
  MemoryContextSwitchTo(memory);
  if (type == TEXTOID) return BytesOfJsonText(copy);
  return Pg([&] {
    if (type == JSONBOID) return BytesOfJsonb(copy);
    return type == JSONOID ? BytesOfText(copy) : copy;
  });
}

}  // namespace postbox
