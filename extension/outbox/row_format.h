// How a row of a table becomes the key and the payload of an event (emit_changes).
//
// The key is the text of the key columns; of several, the texts with ':' between them, in which a
// ':' or a '\' of a value has a '\' before it, so that two keys never read the same. The payload is
// a JSON object of columns, as row_to_json makes it: generated columns are in it, dropped ones are
// not. Both are written under pinned settings, so that a row reads the same in every session.
#ifndef POSTBOX_EXTENSION_OUTBOX_ROW_FORMAT_H_
#define POSTBOX_EXTENSION_OUTBOX_ROW_FORMAT_H_

#include "extension/base/guard.h"

namespace postbox {

class RowFormat {
 public:
  // For rows of the table with these columns; of `payload` all if it is empty. Throws
  // undefined_column. Lives in the memory context that is current.
  RowFormat(Relation table, const std::vector<std::string>& key,
            const std::vector<std::string>& payload);

  // The key of a row, a text in the current memory context. nullopt if a column of it is NULL.
  std::optional<Datum> Key(TupleTableSlot* row);

  // The payload of a row, a text in UTF-8 as bytea, in the current memory context.
  Datum Payload(TupleTableSlot* row);

  // Whether two rows with the same key have the same payload.
  bool HaveSamePayload(TupleTableSlot* one, TupleTableSlot* other);

  // Quoted, for messages: "a", "b".
  const std::string& key_names() const { return key_names_; }

 private:
  struct Column {
    AttrNumber number;
    FmgrInfo output;
  };

  std::string key_names_;
  Column* key_;
  int key_columns_;
  AttrNumber* payload_;
  TupleDesc payload_type_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_OUTBOX_ROW_FORMAT_H_
