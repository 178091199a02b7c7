// Who SQL runs as, and where it looks for names: guards that hold for the life of an object.
#ifndef POSTBOX_EXTENSION_TRUST_ACT_AS_H_
#define POSTBOX_EXTENSION_TRUST_ACT_AS_H_

#include "extension/base/guard.h"

namespace postbox {

enum class Trust { kRestricted, kTrusted };
// How far `owner` trusts the current role: it needs no restriction if the owner could become that
// role anyway.
Trust TrustIn(Oid owner);

// Becomes `role` for its lifetime, in a security-restricted operation: code that belongs to that
// role's objects (triggers, defaults) cannot get out of it. kTrusted omits the restriction, for a
// role that could become the current one anyway; deferred constraints and temporary tables then
// work.
//
// Settings that the code changes are rolled back at the end. A restricted operation does not forbid
// SET: a trigger that left its own search_path behind would decide which operators the caller's
// next statements mean. Settings with which an error would end the process cannot be changed.
class ActAs {
 public:
  explicit ActAs(Oid role, Trust trust = Trust::kRestricted);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  bool restricted_;
  int nest_level_;
  int exceptions_;
  Oid saved_role_ = InvalidOid;
  int saved_context_ = 0;
};

// Sets search_path to pg_catalog, pg_temp (or to `path`) for its lifetime, and
// quote_all_identifiers to off: names and types are compared as text. And row_security to on: the
// policies of Postbox's tables say what a role sees there, and are no error. Code that acts as
// another role needs it too; otherwise functions of that role would look up names where the caller
// wants.
class FixedSearchPath {
 public:
  explicit FixedSearchPath(const char* path = "pg_catalog, pg_temp");
  ~FixedSearchPath();
  FixedSearchPath(const FixedSearchPath&) = delete;
  FixedSearchPath& operator=(const FixedSearchPath&) = delete;

 private:
  int nest_level_;
  int exceptions_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_ACT_AS_H_
