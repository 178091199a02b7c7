// What a session knows about an inbox: its tables, and for each event type the projections and
// handlers that take it, with their prepared statements.
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
// A trigger or a handler may apply an event to the same inbox, and so use the same Inbox while the
// outer call uses it. So an Inbox holds nothing of a single event, and a shared_ptr keeps it for as
// long as it is used, even when the cache has replaced it.
//
// Everything in here runs as the inbox's owner and under FixedSearchPath.
#ifndef POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_
#define POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_

#include "extension/apply/inbox_event.h"
#include "extension/apply/projection.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"

namespace postbox {

struct Handler {
  Handler(Oid function, std::string search_path, std::string sql, Oid event_type)
      : function(function),
        search_path(std::move(search_path)),
        call(std::move(sql), {event_type}) {}

  const Oid function;
  const std::string search_path;  // the schema of the function, then pg_temp
  Statement call;                 // (postbox.event)
};

// The projections and handlers that take the events of one type. If one of them is broken, no event
// of the type is applied: that its target or its function is gone, or no longer fits, is not the
// fault of the event, and half of its effects would be lost.
struct Route {
  struct Step {
    Projection* projection;
    bool deletes;
  };
  std::vector<Step> projections;
  std::vector<Handler*> handlers;
  std::shared_ptr<const PostgresError> problem;  // nullptr if nothing is broken

  void RequireFit() const {
    if (problem != nullptr) throw PostgresError(*problem);
  }
};

class Inbox {
 public:
  // The inbox whose table that is, with a lock of `mode` on it, its tombstones and all targets.
  // Throws undefined_table or wrong_object_type if it is none. Call it with SPI connected, as the
  // inbox's owner, under FixedSearchPath. The caller keeps the pointer while it uses the object.
  static std::shared_ptr<Inbox> Find(Oid relation, LOCKMODE mode);

  explicit Inbox(Oid relation);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // False when something that it was read from has changed since.
  bool valid() const { return valid_; }
  Oid relation() const { return relation_; }
  const std::string& name() const { return name_; }  // quoted, qualified
  Datum outcome(Outcome outcome) const {
    return ObjectIdGetDatum(outcome_oids_[static_cast<size_t>(outcome)]);
  }
  Oid outcome_type() const { return outcome_type_; }
  Tombstones& tombstones() { return *tombstones_; }

  // nullptr if nothing takes events of this type.
  const Route* RouteOf(std::string_view event_type) const;
  // Throws what is wrong with it if it is broken.
  Projection* ProjectionOf(Oid target) const;
  // Whether projections of the target have version columns of their own.
  bool HasSeveralVersions(Oid target) const;
  // Throws what is wrong with a projection or handler that is broken, or insufficient_privilege if
  // a right is missing (rights.h).
  void CheckUsable() const;
  void CheckRights() const;

  // (event_id, event_type, aggregate_type, aggregate_id, version, outcome): no row if it is there.
  Statement& insert() { return insert_; }
  // The same with arrays; returns event_id of the rows that were not there, in the order given.
  Statement& insert_many() { return insert_many_; }
  // (event_id[], outcome)
  Statement& set_outcome() { return set_outcome_; }
  // (event_id[]): how many of these have a row.
  Statement& count() { return count_; }
  // Whether code that belongs to users, such as a trigger or a handler, may run when an event is
  // applied. Defaults, policies on the target and types do not count.
  bool runs_user_code() const { return runs_user_code_; }
  // Whether it may run when a row is inserted into the inbox.
  bool has_triggers() const { return has_triggers_; }
  // (event_id): deletes the row of an event that was rejected, so that it can be applied again.
  Statement& delete_rejected() { return delete_rejected_; }

 private:
  friend struct InboxCache;

  void Load();
  void LoadProjections();
  void LoadProjection(const ProjectionConfig& config);
  void NoteProblem(const std::vector<std::string>& event_types, Oid target,
                   const PostgresError& error);
  void LoadAggregateTypes();
  void LoadHandlers();
  void LookForUserCode();
  void Lock(LOCKMODE mode) const;
  bool Watches(Oid relation) const;

  const Oid relation_;
  bool valid_ = true;
  bool loading_ = true;
  MemoryContext context_ = nullptr;
  Oid tombstone_ = InvalidOid;
  Oid config_[3] = {};  // postbox.inbox, projection, handler
  std::string name_;
  Oid outcome_type_ = InvalidOid;
  Oid outcome_oids_[kOutcomes] = {};
  std::unique_ptr<Tombstones> tombstones_;
  std::vector<std::unique_ptr<Projection>> projections_;
  std::vector<std::unique_ptr<Handler>> handlers_;
  std::map<std::string, Route, std::less<>> routes_;
  struct Problem {
    Oid target;  // InvalidOid: of a handler, or it is dropped
    std::shared_ptr<const PostgresError> error;
  };
  std::vector<Problem> problems_;
  bool runs_user_code_ = false;
  bool has_triggers_ = false;
  Statement insert_, insert_many_, set_outcome_, count_, delete_rejected_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_INBOX_CACHE_H_
