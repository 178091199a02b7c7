// The values of table columns, taken from an event: from a JSON field of the payload, or from a
// field of the event itself.
//
// A value is made as if its text were read by the column's type, so a projection takes what
// INSERT ... VALUES ('text') would take, with the same errors. JSON null is NULL. A JSON object or
// array fills json, jsonb, and, as its text, any type that can read it. Columns of array or
// composite type (and domains over json) take JSON the way jsonb_to_record does; that happens in
// SQL, so their value here is a jsonb object {"v": value} (ColumnInput::structured).
//
// All functions may ereport: call them inside Pg().
#ifndef POSTBOX_EXTENSION_INBOX_COLUMN_VALUE_H_
#define POSTBOX_EXTENSION_INBOX_COLUMN_VALUE_H_

#include "extension/base/postgres.h"
#include "extension/inbox/inbox_event.h"

namespace postbox {

// How a column's type reads values. Plain data; the FmgrInfo lives as long as the memory context
// given to MakeColumnInput.
struct ColumnInput {
  enum class Kind { kText, kJsonb, kJson, kOther };
  Oid type;
  Kind kind;
  bool structured;
  bool domain;
  FmgrInfo function;
  Oid io_parameter;

  // The type of the statement's parameter.
  Oid parameter_type() const { return structured ? JSONBOID : type; }
};

// How the value of a key column becomes a text that is the same for values that are equal.
struct KeyForm {
  enum class Kind {
    kOutput,       // the type's own text: equal values have one
    kTrimScale,    // numeric: without the zeros at the end, 1.0 is 1
    kTrimPadding,  // character(n): without the spaces at the end
    kHash,  // # and a hash of 64 bits: citext, interval, collations that are nondeterministic
  };
  Kind kind;
  Oid collation;
  FmgrInfo function;  // the output function, or the hash function
};

KeyForm MakeKeyForm(Oid type, Oid collation, MemoryContext context);
// In the current memory context. Under the settings of pinned_settings.h.
char* KeyText(KeyForm* form, Datum value);

// Whether values of the type are made from JSON in SQL.
bool IsStructured(Oid type);

ColumnInput MakeColumnInput(Oid type, MemoryContext context);

// The payload of one event as JSON, parsed when first asked for.
class PayloadJson {
 public:
  explicit PayloadJson(const InboxEvent& event) : event_(event) {}

  // The whole payload. An error if it is no JSON.
  Jsonb* Document();

  // Finds the value at `path`. False if there is none; an error if the payload is no JSON object.
  bool Find(const std::vector<std::string>& path, JsonbValue* value);

  // Counts the size of a value that a projection writes. An error, program_limit_exceeded, if all
  // values of the event together are larger than kMostProjected.
  void Take(size_t bytes);
  // The same for a JSON value, as text. A number is short in JSON and in jsonb, and as text it may
  // have a hundred thousand digits: this finds out before the text is made.
  void TakeAsText(JsonbContainer* container);

 private:
  const InboxEvent& event_;
  Jsonb* document_ = nullptr;
  size_t projected_ = 0;
};

// The most that the values of one event may become in all projections together. A message has 10 MB
// at most, so several columns may take all of it.
inline constexpr size_t kMostProjected = 64 * 1024 * 1024;

Datum ColumnFromJson(ColumnInput* input, JsonbValue* value, PayloadJson* payload, bool* null);
Datum ColumnFromEvent(ColumnInput* input, EventField field, const InboxEvent& event,
                      PayloadJson* payload, bool* null);
// `text` nullptr is NULL.
Datum ColumnFromText(ColumnInput* input, char* text, bool* null);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_INBOX_COLUMN_VALUE_H_
