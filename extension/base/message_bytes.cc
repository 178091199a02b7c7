#include "extension/base/message_bytes.h"

namespace postbox {

Datum BytesOfText(Datum value) {
  text* plain = DatumGetTextPP(value);
  const char* bytes = VARDATA_ANY(plain);
  const char* utf8 = pg_server_to_any(bytes, static_cast<int>(VARSIZE_ANY_EXHDR(plain)), PG_UTF8);
  return PointerGetDatum(utf8 == bytes ? plain : cstring_to_text(utf8));
}

Datum BytesOfJsonb(Datum value) {
  Jsonb* jsonb = DatumGetJsonbP(value);
  StringInfoData bytes;
  initStringInfo(&bytes);
  appendStringInfoSpaces(&bytes, VARHDRSZ);
  JsonbToCString(&bytes, &jsonb->root, static_cast<int>(VARSIZE(jsonb)));
  const char* text = bytes.data + VARHDRSZ;
  const char* utf8 = pg_server_to_any(text, bytes.len - VARHDRSZ, PG_UTF8);
  if (utf8 != text) return PointerGetDatum(cstring_to_text(utf8));
  SET_VARSIZE(bytes.data, bytes.len);
  return PointerGetDatum(bytes.data);
}

void CheckJson(Datum value) { ParseJson(DatumGetTextPP(value)); }

}  // namespace postbox
