// The values of table columns, taken from an event: from a JSON field of the payload, or from a
// field of the event itself.
//
// A value is made as if its text were read by the column's type, with the type's modifier, so a
// projection takes what INSERT ... VALUES ('text') would take, with the same errors. Everything is
// converted here, and nothing in the statement that writes the row, so that each error can name its
// column. JSON null is NULL. A number that is whole is whole however it is written. A JSON object
// or array fills json, jsonb, and, with its own bytes as text, any type that can read it. Columns
// of array or composite type (and domains over json) take JSON the way jsonb_to_record does. bytea
// takes the hex format with \x alone: base64 would pass for text of the other format.
//
// All functions may ereport: call them inside Pg().
#ifndef POSTBOX_EXTENSION_APPLY_COLUMN_VALUE_H_
#define POSTBOX_EXTENSION_APPLY_COLUMN_VALUE_H_

#include "extension/apply/inbox_event.h"
#include "extension/apply/payload_json.h"
#include "extension/apply/value_form.h"
#include "extension/base/postgres.h"

namespace postbox {

// How a column's type reads values. Plain data; the FmgrInfo lives as long as the memory context
// given to MakeColumnInput.
struct ColumnInput {
  enum class Kind { kText, kJsonb, kJson, kOther };
  Oid type;
  Oid base_type;
  int32 typmod;  // of the base type
  Kind kind;
  ValueForm form;
  bool structured;
  bool domain;
  FmgrInfo function;  // the type's input function; jsonb_to_record if it is structured
  Oid io_parameter;
  TupleDesc record;  // of a structured one: (v type)
};

// How the value of a key column becomes a text that is the same for values that are equal.
struct KeyForm {
  enum class Kind {
    kOutput,       // the type's own text: equal values have one
    kTrimScale,    // numeric: without the zeros at the end, 1.0 is 1
    kTrimPadding,  // character(n): without the spaces at the end
    kHash,      // # and a hash of 64 bits: citext, interval, collations that are nondeterministic
    kTextHash,  // the same of the text: the hash function of name knows no collation
  };
  Kind kind;
  Oid collation;
  FmgrInfo function;  // the output function, or the hash function
};

// Whether two values of a column of the type are equal if their texts are, and only then.
bool HasExactText(Oid type, Oid collation);
KeyForm MakeKeyForm(Oid type, Oid collation, MemoryContext context);
// In the current memory context. Under the settings of pinned_settings.h.
char* KeyText(KeyForm* form, Datum value);

// Whether values of the type are made from JSON in SQL.
bool IsStructured(Oid type);

ColumnInput MakeColumnInput(Oid type, int32 typmod, ValueForm form, MemoryContext context);
// The same input for a call within a call of its function, which keeps state between calls: for a
// domain the one in which its constraints run. In the current memory context.
ColumnInput WithoutState(const ColumnInput& input);

// `value` is there (not kAbsent), and part of a JSON text in UTF-8. A structured one may be given
// in other bytes, see value_shape.h.
Datum ColumnFromJson(ColumnInput* input, const json::Value& value, PayloadJson* payload,
                     bool* null);
// An element of a key, see ProjectionKey::FromText.
Datum ColumnFromKeyPart(ColumnInput* input, JsonbValue* value, bool* null);
Datum ColumnFromEvent(ColumnInput* input, EventField field, const InboxEvent& event,
                      PayloadJson* payload, bool* null);
// `text` nullptr is NULL.
Datum ColumnFromText(ColumnInput* input, char* text, bool* null);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_COLUMN_VALUE_H_
