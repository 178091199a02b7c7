// What takes the events of an inbox: for each event type the projections and handlers, with their
// prepared statements.
//
// Read from the catalogs once, as the owner of the inbox and under FixedSearchPath. What is wrong
// with a projection or a handler is kept with the types that it takes: no event of such a type is
// applied. The same holds for the pause of one, until it is over by the clock.
#ifndef POSTBOX_EXTENSION_APPLY_ROUTES_H_
#define POSTBOX_EXTENSION_APPLY_ROUTES_H_

#include "extension/apply/projection.h"
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
//
// A pause stops its events in the same way, and has a transient SQLSTATE
// (extension/rules/sqlstate_class.h): nothing is recorded, also if the pause ends just after it has
// stopped an event, or if the event is one that a handler of another inbox applies.
struct Route {
  struct Step {
    Projection* projection;
    bool deletes;
  };
  struct Pause {
    TimestampTz until;
    PostgresError error;
  };
  std::vector<Step> projections;
  std::vector<Handler*> handlers;
  std::shared_ptr<const PostgresError> problem;  // nullptr if nothing is broken
  std::vector<std::shared_ptr<const Pause>> pauses;

  bool Fits() const;
  void RequireFit() const;
};

class Routes {
 public:
  // Reads those of the inbox; `name` is its name, for messages. `context` lives as long as the
  // routes. Needs SPI.
  Routes(Oid inbox, const std::string& name, MemoryContext context, Tombstones* tombstones);

  // nullptr if nothing takes events of this type.
  const Route* Of(std::string_view event_type) const;
  // nullptr if there is none. Throws what is wrong with it if it is broken.
  Projection* ProjectionOf(Oid target) const;
  // Whether projections of the target have different version columns.
  bool HasSeveralVersions(Oid target) const;

  // Throws what is wrong with a projection or handler that is broken, or insufficient_privilege if
  // a right is missing (rights.h).
  void CheckUsable() const;
  void CheckRights() const;

  // Whether code that belongs to users may run when an event is written to a target or is handled.
  bool RunUserCode() const;
  // Whether they must be read again when the relation changes.
  bool DependOn(Oid relation) const;
  // Inside Pg().
  void LockTargets(LOCKMODE mode) const;

 private:
  void ReadProjectionsOf(Oid inbox, MemoryContext context, Tombstones* tombstones);
  void Add(std::unique_ptr<Projection> projection, const ProjectionConfig& config);
  void ShareAggregateTypes(Oid inbox);
  void ReadHandlersOf(Oid inbox);
  void ReadPausesOf(Oid inbox);
  void NoteProblem(const std::vector<std::string>& event_types, Oid target,
                   const PostgresError& error);

  struct Problem {
    Oid target;  // InvalidOid: of a handler, or it is dropped
    std::shared_ptr<const PostgresError> error;
  };
  const std::string inbox_name_;
  std::vector<std::unique_ptr<Projection>> projections_;
  std::vector<std::unique_ptr<Handler>> handlers_;
  std::map<std::string, Route, std::less<>> by_type_;
  std::vector<Problem> problems_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_ROUTES_H_
