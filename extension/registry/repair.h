// What repair_outbox, repair_inbox, register_outbox and register_inbox have in common: flaws are
// listed, and repaired unless it is a dry run.
//
//  - Tables are altered and filled with OwnerRights.
//  - Only the owner of a part is changed as the caller, who has to have the right to.
#ifndef POSTBOX_EXTENSION_REGISTRY_REPAIR_H_
#define POSTBOX_EXTENSION_REGISTRY_REPAIR_H_

#include "extension/base/new_relation.h"
#include "extension/shared/table_shape.h"
#include "extension/trust/owner_rights.h"

namespace postbox {

// Throws unless the table can be this part of an outbox or inbox of `owner`: it is one of that
// role, ordinary or partitioned as the shape says, belongs to no other, and has this shape or can
// get it. `what` says what it is to be.
void CheckFreePart(Oid part, const char* what, Oid owner, const TableShape& shape);

// Locks the relation against all other sessions, for what needs to see all of it. Throws unless the
// transaction is READ COMMITTED, which sees what was committed before the lock.
void LockForRepair(Oid relation);

class Repair {
 public:
  Repair(Oid owner, bool dry_run) : owner_(owner), dry_run_(dry_run) {}

  bool dry_run() const { return dry_run_; }

  // Lists a flaw, and repairs it.
  void Do(const Flaw& flaw);
  void DoAll(const std::vector<Flaw>& flaws);
  // Gives the parts of a registered outbox or inbox to its owner.
  void FixOwners(Oid relation);

  // The result of the SQL function: object, problem, repair.
  void Return(FunctionCallInfo fcinfo) const;
  // The same as NOTICEs.
  void Announce() const;

 private:
  const Oid owner_;
  const bool dry_run_;
  std::vector<Flaw> flaws_;
};

// The part of a registered outbox or inbox, if it is still there: what has the columns of such a
// part, or is of the same owner. `column` of the table `registry` has its number. Else InvalidOid:
// the number may be that of another's table by now.
Oid RegisteredPart(Oid relation, const char* kind, const char* registry, const char* column);

// A table of the schema of `of`, without another owner or use, that is this part of it. `given`: as
// the caller says, or InvalidOid. Else it is the one of the name of `of` with the suffix. Returns
// InvalidOid if there is none; throws if there are others that it could be.
Oid FindFreePart(Oid of, Oid given, const char* suffix, const char* what, const TableShape& shape);

// The quoted, qualified name of a table to be made beside `of`.
NewRelation FreeRelation(Oid of, const char* suffix);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_REPAIR_H_
