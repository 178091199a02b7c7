// What a session knows about an inbox: its rows, its tombstones, and what takes its events.
//
// An Inbox is read from the catalogs once and dropped when one of its relations, the configuration
// tables (their trigger configuration_changed sends the message), a schema or a function changes.
// Messages are received while locks are taken. So Find() reads the entry, locks everything that the
// inbox writes to, and then checks that the entry is still valid; if not, it reads again. After
// that the entry is right until the end of the transaction, or until this session itself changes
// one of the relations, in a trigger or a handler. An ApplySession finds it again before each
// event. Within an event nothing is taken for a type that it no longer has: SQL converts, and what
// goes past SQL checks the types first (dirty_find.h, RequireColumnType).
//
// The current generation (sql/install/functions/40_inbox.sql) is a part of the entry. It changes
// under a SHARE lock of the inbox, which conflicts with that of Find(). So it is the same for all
// transactions that have found the inbox to write to it, until each of them has ended. A REPEATABLE
// READ transaction does not see what was committed into the former one after its snapshot. So if
// its snapshot shows another generation than the current one, Find() raises serialization_failure.
//
// A trigger or a handler may apply an event to the same inbox, and so use the same Inbox while the
// outer call uses it. So an Inbox holds nothing of a single event, and a shared_ptr keeps it for as
// long as it is used, even when the cache has replaced it.
//
// Everything in here runs as the inbox's owner and under FixedSearchPath.
#ifndef POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_
#define POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_

#include "extension/apply/inbox_event.h"
#include "extension/apply/inbox_rows.h"
#include "extension/apply/projection.h"
#include "extension/apply/routes.h"
#include "extension/apply/tombstones.h"

namespace postbox {

class Inbox {
 public:
  // The inbox whose table that is, with a lock of `mode` on it, its tombstones and all targets:
  // RowExclusiveLock to write, AccessShareLock to read. Throws undefined_table or wrong_object_type
  // if it is none, serialization_failure as said above. Call it with SPI connected, as the
  // inbox's owner, under FixedSearchPath. The caller keeps the pointer while it uses the object.
  static std::shared_ptr<Inbox> Find(Oid relation, LOCKMODE mode);

  explicit Inbox(Oid relation);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // False when something that it was read from has changed since.
  bool valid() const { return valid_; }
  Oid relation() const { return relation_; }
  const std::string& name() const { return rows_->name(); }  // quoted, qualified
  InboxRows& rows() { return *rows_; }
  Tombstones& tombstones() { return *tombstones_; }
  const Routes& routes() const { return *routes_; }
  // Whether code that belongs to users, such as a trigger or a handler, may run when an event is
  // applied. Defaults, policies on the target and types do not count.
  bool runs_user_code() const { return runs_user_code_; }
  // Whether it may have parked keys (parked_keys.h). The same until the end of the transaction.
  bool parks_keys() const { return parks_keys_; }

 private:
  friend struct InboxCache;

  void Load();
  void Lock(LOCKMODE mode) const;
  bool Watches(Oid relation) const;
  void RequireGenerationOfSnapshot() const;

  const Oid relation_;
  bool valid_ = true;
  bool loading_ = true;  // the objects below may be missing
  MemoryContext context_ = nullptr;
  Oid config_[3] = {};  // postbox.inbox, projection, handler
  std::unique_ptr<InboxRows> rows_;
  std::unique_ptr<Tombstones> tombstones_;
  std::unique_ptr<Routes> routes_;
  bool runs_user_code_ = false;
  bool parks_keys_ = false;
  int generation_ = 0;
  TimestampTz generation_since_ = 0;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_
