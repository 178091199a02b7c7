// What touches the tables of the owner runs as the owner: their triggers run with its rights, for
// any role that may purge. What reads and writes Postbox's own tables runs as the owner of these.
#include "extension/registry/purge_inbox.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/base/uuid.h"
#include "extension/registry/generations.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/inbox_shape.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

// The tables of an inbox, and what of them is due.
struct DueInbox {
  Oid relation;
  std::vector<Oid> tables;  // the inbox, and its tombstones unless they were dropped
  int current;              // the generation
  bool rotation;
  bool ahead;             // the clock was set back: a generation seems to begin later than now
  std::vector<int> past;  // the generations that are older than the retention

  int next() const { return (current + 1) % kInboxGenerations; }
  bool nothing() const { return !rotation && !ahead && past.empty(); }
};

// Intervals are compared, so that no retention is too long for a timestamp.
DueInbox ReadDue(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  if (Run("SELECT i.tombstone::oid, i.generation::int, "
          "clock_timestamp() - i.generation_since >= i.retention / 2, "
          "clock_timestamp() - i.previous_since >= i.retention, "
          "clock_timestamp() - i.generation_since >= i.retention, "
          "greatest(i.generation_since, i.previous_since) > clock_timestamp() "
          "FROM postbox.inbox i WHERE i.relation = $1",
          key) == 0) {
    ThrowNoInbox(relation);
  }
  DueInbox due{.relation = relation,
               .tables = {relation},
               .current = Int32Column(0, 2),
               .rotation = BoolColumn(0, 3),
               .ahead = BoolColumn(0, 6),
               .past = {}};
  // The one before the previous one is the next one, too.
  if (BoolColumn(0, 4)) due.past.push_back(due.next());
  if (BoolColumn(0, 5)) due.past.push_back((due.current + 2) % kInboxGenerations);
  const Oid tombstone = OidColumn(0, 1);
  if (!RelationName(tombstone).empty()) due.tables.push_back(tombstone);
  return due;
}

// The ids of parked events, as the inbox has them.
Datum ParkedIds(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  std::vector<std::string> texts;
  {
    const Registrar registrar("dead_letter");
    texts = TextColumns(Run("SELECT d.event_id FROM postbox.dead_letter d WHERE d.inbox = $1 "
                            "AND d.parked AND d.event_id IS NOT NULL",
                            key),
                        1);
  }
  std::vector<pg_uuid_t> ids;
  for (const std::string& text : texts) ids.push_back(InboxKey(text));
  return Pg([&] {
    auto* values = static_cast<Datum*>(palloc((ids.size() + 1) * sizeof(Datum)));
    for (size_t i = 0; i < ids.size(); ++i) values[i] = UUIDPGetDatum(&ids[i]);
    return ArrayValue(UUIDOID, values, nullptr, ids.size());
  });
}

// Without its row a parked event that is delivered again would be applied out of its order.
bool KeepParked(const DueInbox& due, int generation) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, due.relation).AddInt(generation).AddInt(due.current);
  parameters.Add(UUIDARRAYOID, ParkedIds(due.relation));
  const Oid owner = RelationOwner(due.relation);
  const ActAs act_as(owner, TrustIn(owner));
  Run("SELECT postbox.keep_parked($1, $2, $3, $4)", parameters);
  return BoolColumn(0, 1);
}

// Returns how many partitions were emptied.
int Empty(const DueInbox& due, int generation) {
  int emptied = 0;
  for (const Oid table : due.tables) {
    const Oid partition =
        GenerationPartitions(table, kInboxGenerations)[static_cast<size_t>(generation)];
    if (!OidIsValid(partition)) continue;
    if (table == due.relation && !KeepParked(due, generation)) continue;
    Parameters parameters;
    parameters.AddOid(REGCLASSOID, partition);
    const Oid owner = RelationOwner(due.relation);
    const ActAs act_as(owner, TrustIn(owner));
    Run("SELECT postbox.empty_partition($1)", parameters);
    if (BoolColumn(0, 1)) ++emptied;
  }
  return emptied;
}

// Under the locks of a rotation, as the owner.
bool IsNextEmpty(const DueInbox& due) {
  for (const Oid table : due.tables) {
    const Oid partition =
        GenerationPartitions(table, kInboxGenerations)[static_cast<size_t>(due.next())];
    if (!OidIsValid(partition)) return false;
    Parameters parameters;
    parameters.AddOid(REGCLASSOID, partition);
    Run("SELECT postbox.is_empty($1)", parameters);
    if (!BoolColumn(0, 1)) return false;
  }
  return true;
}

// Nothing waits behind it for long: what is not to be had at once, or within the lock_timeout of
// lock_for_rotation, is an error, and the locks are given back.
void Rotate(const DueInbox& due) {
  {
    const Oid owner = RelationOwner(due.relation);
    const ActAs act_as(owner, TrustIn(owner));
    if (!IsNextEmpty(due)) return;
    std::string tables;
    for (const Oid table : due.tables) {
      tables += (tables.empty() ? "" : ", ") + std::to_string(table);
    }
    Run("SELECT postbox.lock_for_rotation(ARRAY[" + tables + "]::oid[]::regclass[])");
    if (!IsNextEmpty(due)) return;
  }
  Parameters key;
  key.AddOid(REGCLASSOID, due.relation).AddInt(due.current);
  const Registrar registrar("inbox");
  // Of two sessions with the SHARE lock, one rotates.
  if (Run("SELECT FROM postbox.inbox i WHERE i.relation = $1 AND i.generation = $2 "
          "AND clock_timestamp() - i.generation_since >= i.retention / 2 FOR UPDATE NOWAIT",
          key) == 0) {
    return;
  }
  Run("UPDATE postbox.inbox AS i SET generation = ($2 + 1) % 3, previous_since = "
      "i.generation_since, generation_since = clock_timestamp() WHERE i.relation = $1",
      key);
}

// Otherwise a clock that was wrong for a moment, by years, keeps all ids for years.
void CountFromNow(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const Registrar registrar("inbox");
  Run("UPDATE postbox.inbox AS i SET generation_since = least(i.generation_since, "
      "clock_timestamp()), previous_since = least(i.previous_since, clock_timestamp()) "
      "WHERE i.relation = $1",
      key);
}

}  // namespace

int PurgeInbox(Oid relation) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(relation);
  if (IsolationUsesXactSnapshot()) {
    Throw(ERRCODE_INVALID_TRANSACTION_STATE, "purge_inbox needs isolation level READ COMMITTED",
          "An older snapshot does not show which generation is current.");
  }
  if (ReadDue(relation).nothing()) return 0;
  // One purge at a time, and no rotation of another session until this transaction ends: what is
  // due by the second look stays due. A generation that was due by an older look may be the current
  // one meanwhile.
  if (!Pg([&] { return ConditionalLockRelationOid(relation, ShareUpdateExclusiveLock); })) return 0;
  RequireInboxOwner(relation);
  const DueInbox due = ReadDue(relation);
  // Rows that this transaction has inserted itself are not committed either. (To empty a generation
  // takes the same lock.)
  const bool writes = Pg([&] {
    Relation inbox = relation_open(relation, AccessShareLock);
    const bool locked = CheckRelationLockedByMe(inbox, RowExclusiveLock, false);
    relation_close(inbox, NoLock);
    return locked;
  });
  if (due.ahead) CountFromNow(relation);
  int emptied = 0;
  for (const int generation : due.past) emptied += Empty(due, generation);
  if (!due.rotation || writes) return emptied;
  try {
    InSubtransaction([&] { Rotate(due); });
  } catch (const PostgresError& error) {
    if (error.sqlstate != ERRCODE_LOCK_NOT_AVAILABLE &&
        error.sqlstate != ERRCODE_T_R_DEADLOCK_DETECTED) {
      throw;
    }
  }
  return emptied;
}

}  // namespace postbox
