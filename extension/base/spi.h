// Running SQL from C++: one connection guard, one way to pass parameters, and the guards that say
// as whom and with which search_path it runs. Names in SQL text are quoted with Quoted() and
// nothing else.
//
// All of it throws PostgresError (guard.h); no ereport gets out.
#ifndef POSTBOX_EXTENSION_SPI_H_
#define POSTBOX_EXTENSION_SPI_H_

#include "extension/guard.h"

namespace postbox {

// Connects to SPI for its lifetime. While an error is on its way it leaves the connection to the
// abort of the (sub)transaction, which knows how deep the nesting was when the error came.
class SpiConnection {
 public:
  SpiConnection();
  ~SpiConnection();
  SpiConnection(const SpiConnection&) = delete;
  SpiConnection& operator=(const SpiConnection&) = delete;

 private:
  int exceptions_;
};

// Positional parameters of a statement. Texts are copied into palloc's memory, in the context that
// is current.
class Parameters {
 public:
  Parameters& Add(Oid type, Datum value) { return Push(type, value, false); }
  Parameters& AddNull(Oid type) { return Push(type, Datum{0}, true); }
  Parameters& AddText(std::string_view text);
  Parameters& AddInt(int value) { return Push(INT4OID, Int32GetDatum(value), false); }
  Parameters& AddOid(Oid type, Oid value) { return Push(type, ObjectIdGetDatum(value), false); }

  int size() const { return static_cast<int>(types_.size()); }
  Oid* types() { return types_.data(); }
  Datum* values() { return values_.data(); }
  const char* nulls() const { return nulls_.data(); }

 private:
  Parameters& Push(Oid type, Datum value, bool null);

  std::vector<Oid> types_;
  std::vector<Datum> values_;
  std::vector<char> nulls_;
};

// Runs one statement (or, without parameters, several utility commands). Returns the number of
// rows; they stand in SPI_tuptable.
uint64 Run(const std::string& sql);
uint64 Run(const std::string& sql, Parameters& parameters);

// The first row of the last statement, column numbers from 1. `null` may be nullptr; a NULL is then
// Datum{0}.
Datum FirstRow(int column, bool* null = nullptr);

// A value of the first row as text, and empty if it is NULL.
std::string FirstRowText(int column);

// An identifier, and a qualified name, for SQL text.
std::string Quoted(std::string_view identifier);
std::string Quoted(std::string_view schema, std::string_view name);

// The quoted qualified name of a relation; empty if there is none with that OID.
std::string RelationName(Oid relation);

// Becomes `role` for its lifetime, in a security-restricted operation: code of that role's objects
// (triggers, defaults) cannot get out of it. kTrusted leaves the restriction out, for a role that
// could become the current one anyway: deferred constraints and temporary tables work then.
enum class Trust { kRestricted, kTrusted };
class ActAs {
 public:
  explicit ActAs(Oid role, Trust trust = Trust::kRestricted);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  Oid saved_role_ = InvalidOid;
  int saved_context_ = 0;
};

// search_path = pg_catalog, pg_temp (or another one) for its lifetime. Whoever acts as somebody
// else needs it too, or that somebody's functions would look for names where the caller wants them
// to.
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

// Locks the registration of an outbox (registry "outbox") or an inbox (registry "inbox") until the
// end of the transaction, acting as the owner of the registry: what refers to it comes and goes
// under this lock. Throws if it has just been dropped.
void LockRegistration(const char* registry, Oid relation);

// The OID of a relation of schema postbox, and of its owner: that of the extension.
Oid PostboxRelation(const char* name);
Oid RelationOwner(Oid relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SPI_H_
