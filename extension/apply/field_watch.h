// Notices fields of the payload that a projection takes and that no event has: a name that is
// misspelt, or displayName where the projection says display_name. Nothing else would tell it from
// a field that an event leaves out because it has not changed.
//
// A field is missing when it was in none of the last 100 events of one type, and in none of the
// last 100 of any other type of the projection. It then has a row in postbox.missing_field, from
// which postbox.inbox_problem makes a warning, until it is seen.
//
// Each session counts in memory the events that it applies itself. It looks at the table when
// something has changed, once a second at most, and once a minute, since other sessions see other
// events. What it writes is part of the transaction that applies the event. So sessions would wait
// for each other, and for what each has locked in the targets. Hence only the session that gets a
// lock on the row of the projection writes; another one tries later (FOR NO KEY UPDATE SKIP
// LOCKED). If the transaction rolls back, the next look puts it right.
#ifndef POSTBOX_EXTENSION_APPLY_FIELD_WATCH_H_
#define POSTBOX_EXTENSION_APPLY_FIELD_WATCH_H_

#include "extension/apply/payload_json.h"
#include "proto/rules/json_scan.h"

namespace postbox {

class FieldWatch {
 public:
  // In none of so many events.
  static constexpr uint32 kEvents = 100;

  explicit FieldWatch(int64 projection) : projection_(projection) {}

  // A column that takes a JSON field. `in_doubt`: only if the events have a field with a similar
  // name. Called before the first event.
  void Add(const std::string& column, std::vector<std::string> path, size_t place, bool in_doubt);

  // An event, with what was found at the places of the paths. Needs an open SPI connection.
  void Note(std::string_view event_type, PayloadJson& payload,
            const std::vector<json::Value>& fields);

 private:
  struct Field {
    std::string column;
    std::vector<std::string> path;  // in UTF-8
    size_t place;
    bool in_doubt;
    bool reported = false;  // it has a row, as far as is known
  };
  struct Type {
    uint32 events = 0;          // as many as kEvents at most
    std::vector<uint32> since;  // for each field the events since it was seen
  };

  bool IsMissing(size_t field) const;
  bool WasSeen(size_t field) const;
  void Look(std::string_view payload);
  void Report(Field* field, const std::vector<std::string>& types, const std::string& similar);
  void Withdraw(Field* field);

  const int64 projection_;
  std::vector<Field> fields_;
  std::map<std::string, Type, std::less<>> types_;
  uint32 events_ = 0;
  bool changed_ = false;
  TimestampTz looked_at_ = 0;
  TimestampTz changed_look_at_ = 0;  // the last one because something had changed
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_FIELD_WATCH_H_
