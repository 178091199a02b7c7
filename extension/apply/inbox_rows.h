// The rows of an inbox: which events it has seen, and what came of each.
//
// A row is inserted into the current generation, unless one of the others has a row of the event
// (seen_ids.h). Two sessions with one event meet in the unique index of the current one: while a
// transaction that has inserted is open, no other generation becomes current (inbox_cache.h).
//
// The table belongs to the owner of the inbox, who may give it triggers and rules. So each function
// checks what it relies on: that a row is there, that it has the id and the outcome of its event.
// All of it runs as the owner, under FixedSearchPath, with SPI connected.
#ifndef POSTBOX_EXTENSION_APPLY_INBOX_ROWS_H_
#define POSTBOX_EXTENSION_APPLY_INBOX_ROWS_H_

#include "extension/apply/inbox_event.h"
#include "extension/apply/seen_ids.h"
#include "extension/base/statement.h"

namespace postbox {

class InboxRows {
 public:
  // `name` is quoted and qualified, `generation` is the current one. Throws what is wrong with the
  // table (inbox_tables.h).
  InboxRows(Oid relation, std::string name, int generation);

  const std::string& name() const { return name_; }
  Oid outcome_type() const { return outcome_type_; }
  Datum ValueOf(Outcome outcome) const {
    return ObjectIdGetDatum(outcome_oids_[static_cast<size_t>(outcome)]);
  }
  // Whether code of users, such as a trigger, may run when a row is inserted.
  bool has_triggers() const { return has_triggers_; }
  bool IsPartition(Oid relation) const {
    return std::any_of(partitions_.begin(), partitions_.end(),
                       [&](const auto& one) { return one.relation == relation; });
  }

  // False if the event has a row already.
  bool Insert(const InboxEvent& event, Outcome outcome);
  // Inserts all events in one statement, in the order of their keys, so that two sessions with the
  // same events lock them in the same order. Returns which were new; of two with one key, the
  // first.
  std::vector<bool> InsertAll(const std::vector<InboxEvent>& events,
                              const std::vector<Outcome>& outcomes);
  // Corrects the outcome of rows that this transaction has inserted.
  void SetOutcome(const std::vector<const InboxEvent*>& events, Outcome outcome);
  // Throws unless each of the events, which have different keys, has its row.
  void Require(const std::vector<const InboxEvent*>& events);
  // So that an event that was rejected or parked can be applied.
  void DeleteGivenUp(const InboxEvent& event);
  // A parked event is no longer one.
  void SetRejected(const InboxEvent& event);

 private:
  // Which of the ids other generations than the current one have.
  std::vector<bool> SeenBefore(std::span<const pg_uuid_t* const> ids) const;

  const std::string name_;
  std::vector<InboxPartition> partitions_;
  std::vector<InboxPartition> others_;  // than the current one
  Oid outcome_type_ = InvalidOid;
  Oid outcome_oids_[kOutcomes] = {};
  bool has_triggers_ = false;
  Statement insert_, insert_all_, set_outcome_, count_, delete_given_up_, set_rejected_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_INBOX_ROWS_H_
