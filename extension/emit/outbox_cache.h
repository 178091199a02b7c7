// What a backend knows about the outboxes it emits to: names, owner, version counter, sequence and
// prepared statements.
//
// An entry is looked up in postbox.outbox once, and again after an invalidation message about the
// table, its counter, its sequence, any schema, or postbox.outbox itself (its trigger
// configuration_changed sends that one). Rule: lock the outbox first (RowExclusiveLock), then ask
// here; the answer is right until the end of the transaction.
//
//  1. Another session alters the outbox and commits while this one waits for the lock. The lock is
//     granted; taking it receives the invalidation message, and the entry is marked stale.
//  2. The other session alters it while the entry is being read from the catalogs. The message
//     count (`changes`) has moved meanwhile, so the new entry is stored as stale and is read again
//     next time. The caller has the lock, so what it uses of the entry cannot have changed.
//  3. After the lock no other session can alter the outbox until this transaction ends.
//
// Statements are prepared as the owner of the outbox, with the fixed search_path, because looking
// up names asks for USAGE on the schema and emitters need not have that, and because a function of
// the owner may be made part of a plan. They run with the fixed search_path too, or they would be
// prepared again. The INSERT of an event is the exception: its plan goes straight to the executor
// (insert_plan.h), under the search_path of the session.
#ifndef POSTBOX_EXTENSION_EMIT_OUTBOX_CACHE_H_
#define POSTBOX_EXTENSION_EMIT_OUTBOX_CACHE_H_

#include "extension/base/statement.h"
#include "extension/emit/insert_plan.h"
#include "extension/emit/plain_table.h"
#include "extension/registry/outbox_facts.h"

namespace postbox {

enum class OutboxStatement {
  // (aggregate_type, aggregate_id) -> version: counts up
  kNextVersion,
  // (aggregate_type, aggregate_id, version) -> version: no row if that is not newer than the last
  kTakeVersion,
  // (aggregate_type, aggregate_id) -> version: locks the counter's row as it is
  kLockVersion,
  // The same three for a row that is there: no row if it is not.
  kNextVersionOfRow,
  kTakeVersionOfRow,
  kLockVersionOfRow,
  // (aggregate_type, aggregate_id) -> version
  kLastVersion,
  // (id) -> version
  kFindEvent,
  // id, seq, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
  // attributes, occurred_at; into a log also txid, generation, origin. (Their
  // defaults would be set up and evaluated for each event.)
  kInsert,
};
inline constexpr size_t kOutboxStatements = 9;

// The tables of an outbox, open to be written without a statement: for some events in a row. All
// are plain, or none is open: no code of a user runs meanwhile.
class OpenTables {
 public:
  OpenTables() = default;
  // After an error PostgreSQL has closed them.
  ~OpenTables() = default;
  OpenTables(const OpenTables&) = delete;
  OpenTables& operator=(const OpenTables&) = delete;

  bool AreOpen() const { return plan_ != nullptr; }
  PlainTable* counter() { return &counter_; }
  void InsertIntoLog(std::span<const LogRow> rows);
  void Close();

 private:
  friend class Outbox;

  std::shared_ptr<const InsertPlan> plan_;  // nullptr unless they are open
  PlainTable log_;
  PlainTable counter_;
};

class Outbox {
 public:
  explicit Outbox(OutboxFacts facts) : facts_(std::move(facts)) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  const OutboxFacts& facts() const { return facts_; }

  // Runs a statement as the current user; call it with SPI connected and under FixedSearchPath.
  // Returns the number of rows.
  uint64 Run(OutboxStatement statement, Datum* values);

  // Opens the tables of a log, if they are plain, for the current user, who may insert into it.
  void Open(int16 generation, OpenTables* tables);

  // The same as Insert() for an event of a log, by writing the row. False, and nothing is done, if
  // the statement has to be run.
  bool InsertIntoLog(const LogRow& row);

  // Opens the version counter, if it is plain and may be written as the owner of the outbox.
  bool OpenCounter(PlainTable* counter) const;

  // Runs kInsert as the current user and under the search_path of the session, like a plain INSERT.
  // Call it without FixedSearchPath, with the outbox locked. Returns the number of rows.
  uint64 Insert(Datum* values);

 private:
  // The statement with a valid plan, so that running it looks up no names.
  Statement& Planned(OutboxStatement which);

  // Opens the partition for a generation of a log, if it is plain and the current user may insert
  // into it. Returns the plan that says so; nullptr if not.
  std::shared_ptr<const InsertPlan> OpenLog(int16 generation, PlainTable* log);

  // The plan of kInsert for the current user.
  std::shared_ptr<const InsertPlan> PlanOfInsert();

  OutboxFacts facts_;
  std::array<Statement, kOutboxStatements> statements_;
  // Kept only if it is valid for every user.
  std::shared_ptr<const InsertPlan> insert_;
};

// The outbox whose table that is. Throws undefined_table if the table is gone, wrong_object_type if
// it is no outbox. The caller keeps the pointer while it uses the object: a trigger that it fires
// may make the cache drop its own.
std::shared_ptr<Outbox> FindOutbox(Oid relation);

// Whether the table is registered as an outbox.
bool IsOutbox(Oid relation);

// The log that this table is a partition of; the table itself if it is none.
Oid LogOfPartition(Oid partition);

// The outbox that the setting postbox.default_outbox names, with the search_path of the session (so
// not under FixedSearchPath); InvalidOid if the setting is empty or does not count for the current
// user (define_settings.h).
Oid DefaultOutbox();

// The only outbox that the current user owns. If it owns none: of those that it may insert into,
// the only one with a publication, and if none has one, the only one. An error if there is none, or
// more than one.
//
// A role that may create a table can create an outbox and grant INSERT to any role, by name too, so
// a GRANT says nothing about what the emitter wants. A publication does: it needs a right that
// PUBLIC does not have. So such an outbox is not in the way of one that the emitter owns, nor of
// one that is published.
Oid OnlyOutbox();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_OUTBOX_CACHE_H_
