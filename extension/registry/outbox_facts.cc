#include "extension/registry/outbox_facts.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

[[noreturn]] void ThrowNoOutbox(Oid relation, const std::string& name) {
  if (name.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "outbox with OID " + std::to_string(relation) + " does not exist",
          "Its table has been dropped.", "Create it with postbox.create_outbox.");
  }
  Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + name + "\" is not an outbox", "",
        "Create an outbox with postbox.create_outbox. The outboxes of this database are listed in "
        "postbox.outbox.");
}

bool CounterIsUsable(const OutboxFacts& facts) {
  return RelationOwner(facts.counter) == facts.owner || Pg([&] { return OwnerMayCount(facts); });
}

// The emitter would be told of the counter only.
[[noreturn]] void ThrowNoCounterRights(const OutboxFacts& facts) {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "outbox \"" + facts.name + "\" is incomplete",
        "Its version counter " + facts.counter_name + " belongs to role \"" +
            RoleName(RelationOwner(facts.counter)) + "\", and its owner, \"" +
            RoleName(facts.owner) + "\", has no rights on it.",
        "A superuser can run SELECT * FROM postbox.repair_outbox.");
}

OutboxFacts ReadFacts(Oid relation) {
  OutboxFacts facts;
  facts.relation = relation;
  facts.name = RelationName(relation);
  if (facts.name.empty()) ThrowNoOutbox(relation, "");
  facts.owner = RelationOwner(relation);
  facts.given_versions = PostboxRelation("given_version");
  // By OID throughout: looking up names asks for USAGE on the schema.
  const std::string sql =
      "SELECT o.counter::oid, (SELECT d.objid FROM pg_depend d, pg_attribute a, pg_class s"
      " WHERE a.attrelid = o.relation AND a.attname = 'seq' AND d.refclassid = 'pg_class'::regclass"
      " AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.classid = "
      "'pg_class'::regclass"
      " AND d.deptype IN ('a', 'i') AND s.oid = d.objid AND s.relkind = 'S' LIMIT 1),"
      " (SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid"
      " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
      " WHERE i.indrelid = o.relation AND i.indisunique AND i.indnkeyatts = 1"
      " AND a.attname = coalesce(o.columns ->> 'id', 'id')"
      " ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1),"
      " o.kind = 'log', coalesce(o.parked::oid, 0), o.adopted,"
      " coalesce(extract(epoch FROM o.generation_span)::bigint, 0), o.version_floor,"
      " coalesce(to_regprocedure('postbox.stamp_event()')::oid, 0)"
      " FROM postbox.outbox o WHERE o.relation = $1";
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, relation);
  if (Run(sql, parameters) == 0) ThrowNoOutbox(relation, facts.name);
  facts.counter = OidColumn(0, 1);
  facts.sequence = OidColumn(0, 2);
  facts.primary_key = PrintedColumn(0, 3);
  facts.is_log = BoolColumn(0, 4);
  const Oid parked = OidColumn(0, 5);
  if (OidIsValid(parked)) facts.parked_name = RelationName(parked);
  facts.adopted = BoolColumn(0, 6);
  facts.generation_span = Int64Column(0, 7);
  facts.version_floor = Int64Column(0, 8);
  facts.stamp = OidColumn(0, 9);
  facts.counter_name = RelationName(facts.counter);
  if (facts.counter_name.empty() || !OidIsValid(facts.sequence)) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "outbox \"" + facts.name + "\" is incomplete",
          facts.counter_name.empty() ? "Its version counter has been dropped."
                                     : "Its column seq no longer owns a sequence.",
          "Its owner can run SELECT * FROM postbox.repair_outbox.");
  }
  if (facts.adopted) facts.columns = ReadOutboxColumns(relation);
  return facts;
}

}  // namespace

bool OwnerMayCount(const OutboxFacts& facts) {
  constexpr AclMode kRights = ACL_SELECT | ACL_INSERT | ACL_UPDATE;
  return pg_class_aclmask(facts.counter, facts.owner, kRights, ACLMASK_ALL) == kRights;
}

OutboxFacts ReadOutboxFacts(Oid relation) {
  OutboxFacts facts = ReadFacts(relation);
  if (CounterIsUsable(facts)) return facts;
  // ALTER TABLE ... OWNER TO gives both tables away. If it was committed between the two readings,
  // they fit as soon as it has ended.
  Pg([&] { LockRelationOid(relation, AccessShareLock); });
  facts = ReadFacts(relation);
  if (!CounterIsUsable(facts)) ThrowNoCounterRights(facts);
  Pg([&] { UnlockRelationOid(relation, AccessShareLock); });
  return facts;
}

OutboxFacts ReadOwnedOutbox(Oid relation) {
  OutboxFacts facts = ReadOutboxFacts(relation);
  if (!Pg([&] { return OwnsRelation(relation, GetUserId()); })) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "must be owner of outbox \"" + facts.name + "\"");
  }
  return facts;
}

Oid OutboxOfPublication(const std::string& name) {
  Parameters key;
  key.AddText(name);
  if (Run("SELECT outbox::oid FROM postbox.publication WHERE name = $1", key) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "publication \"" + name + "\" does not exist", "",
          "The publications of this database are listed in postbox.publication.");
  }
  return OidColumn(0, 1);
}

}  // namespace postbox
