// The payload of one event as JSON.
//
// Its bytes are UTF-8, whatever the encoding of the database is. Only the values that a projection
// writes are made of it and converted: the rest may hold what the database cannot, such as \u0000
// or, with another encoding than UTF-8, a character that this lacks. All of it must be JSON.
#ifndef POSTBOX_EXTENSION_APPLY_PAYLOAD_JSON_H_
#define POSTBOX_EXTENSION_APPLY_PAYLOAD_JSON_H_

#include "extension/apply/inbox_event.h"
#include "extension/base/guard.h"
#include "proto/rules/json_scan.h"

namespace postbox {

class PayloadJson {
 public:
  explicit PayloadJson(const InboxEvent& event) : event_(event) {}

  // The values at the paths. Throws if the payload is no JSON object.
  void Find(const json::Paths& paths, std::vector<json::Value>* values);

  // The functions below may ereport: call them inside Pg().

  // The whole payload. An error if it is not UTF-8; it need not be JSON.
  std::string_view Text();
  // Counts the size of a value that a projection writes. An error, program_limit_exceeded, if all
  // values of the event together are larger than kMostProjected.
  void Take(size_t bytes);
  // The same for a JSON value, as text. A number is short in JSON and in jsonb, and as text it may
  // have a hundred thousand digits: this finds out before the text is made.
  void TakeAsText(JsonbContainer* container);

 private:
  const InboxEvent& event_;
  std::string_view text_;
  bool read_ = false;
  size_t projected_ = 0;
};

// The most that the values of one event may become in all projections together. A message has 10 MB
// at most, so several columns may take all of it.
inline constexpr size_t kMostProjected = 64 * 1024 * 1024;

// Text of a payload in the encoding of the database, ended by a zero byte. Inside Pg().
char* ServerText(std::string_view text);
// What a JSON string says, likewise; `quoted` has its quotes. An error if no text can hold it.
char* ServerString(std::string_view quoted);

// "a string", "an object" and so on.
const char* JsonKindName(json::Kind kind);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PAYLOAD_JSON_H_
