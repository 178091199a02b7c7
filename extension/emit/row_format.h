// How a row of a table becomes the key and the payload of an event (emit_changes).
//
// The key is the text of the key columns; of several, the texts with ':' between them, in which a
// ':' or a '\' of a value has a '\' before it, so that two keys never read the same. The payload is
// a JSON object of columns, as row_to_json makes it: generated columns are in it, dropped ones are
// not. A row reads the same in every session: where a column has a type whose text depends on
// settings, or may run code of a user, both are written under pinned settings.
#ifndef POSTBOX_EXTENSION_EMIT_ROW_FORMAT_H_
#define POSTBOX_EXTENSION_EMIT_ROW_FORMAT_H_

#include "extension/base/session_memory.h"
#include "extension/emit/row_json.h"

namespace postbox {

class RowFormat {
 public:
  // For rows of the table with these columns; of `payload` all if it is empty. Throws
  // undefined_column.
  RowFormat(Relation table, const std::vector<std::string>& key,
            const std::vector<std::string>& payload);

  // Whether the functions below have to be called under pinned settings (pinned_settings.h) and
  // FixedSearchPath.
  bool NeedsPinnedSettings() const { return needs_settings_; }

  // The key of a row, a text in the current memory context. nullopt if a column of it is NULL.
  std::optional<Datum> Key(TupleTableSlot* row);

  // The payload of a row, a text in UTF-8 as bytea, in the current memory context.
  Datum Payload(TupleTableSlot* row);

  // Whether two rows surely have the same key, or both none: what it is made of is the same. Costs
  // less than two keys.
  bool AreKeysAlike(TupleTableSlot* one, TupleTableSlot* other);

  // Whether two rows with the same key have the same payload.
  bool HaveSamePayload(TupleTableSlot* one, TupleTableSlot* other);

  // Quoted, for messages: "a", "b".
  const std::string& key_names() const { return key_names_; }

 private:
  struct KeyColumn {
    AttrNumber number;
    FmgrInfo output;
  };
  struct Member {
    AttrNumber number;
    JsonKind kind;
    std::string_view name;  // as it begins in the object: "name":
  };

  void AddKey(Relation table, const std::vector<std::string>& key);
  void AddPayload(Relation table, const std::vector<std::string>& names);
  text* WriteJson(TupleTableSlot* row);
  text* RowToJson(TupleTableSlot* row) const;

  SessionMemory memory_;  // of what is below
  std::string key_names_;
  bool needs_settings_ = false;
  std::span<KeyColumn> key_;
  std::span<Member> payload_;
  bool has_other_ = false;  // a member of kOther
  TupleDesc payload_type_ = nullptr;
  StringInfoData written_{};  // the JSON of a row
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_ROW_FORMAT_H_
