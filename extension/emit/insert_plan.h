// The plan of a prepared INSERT, run by the executor without SPI.
//
// SPI runs a prepared statement only under the search_path that it was prepared with. A plan has no
// names left in it: it may run under any search_path, and then triggers, checks and defaults find
// that of the session, as in a plain INSERT. The executor looks at the rights of the current user
// each time, and calls the hooks of other extensions.
//
// A plan is valid until an invalidation message says otherwise. Messages arrive when a lock is
// taken, so lock the table first, then ask IsValid(). A plan with row security in it is valid for
// one user only and is not kept.
//
// This is the one plan that is not run as a Statement (base/statement.h). Where the tables are
// plain, it is not run at all: it says what the caller needs rights on, and that there is nothing
// to do but to write the row (plain_table.h).
#ifndef POSTBOX_EXTENSION_EMIT_INSERT_PLAN_H_
#define POSTBOX_EXTENSION_EMIT_INSERT_PLAN_H_

#include "extension/base/spi.h"

extern "C" {
#include <utils/plancache.h>
}

namespace postbox {

class InsertPlan {
 public:
  // The plan of a kept statement for the current user, made again if need be. Call it with SPI
  // connected and under the search_path that the statement was prepared with. The statement must
  // outlive all calls but the destructor's.
  explicit InsertPlan(SPIPlanPtr statement);
  ~InsertPlan();
  InsertPlan(const InsertPlan&) = delete;
  InsertPlan& operator=(const InsertPlan&) = delete;

  // Whether it is one INSERT and nothing else; rules can make more or less of the statement.
  bool IsSingle() const;

  // Whether it may be kept: it is valid for every user, and running it needs a lock on `relation`
  // only.
  bool IsForEveryone(Oid relation) const;

  // The caller needs no right on these columns of `relation`: their values are not the caller's.
  // It still needs a right on each of the others.
  void NeedNoRightOn(Oid relation, std::initializer_list<const char*> columns);

  // Whether a plan that is kept is still valid.
  bool IsValid() const;

  // Raises insufficient_privilege unless the current user may run it.
  void CheckRights() const;

  // Calls `f`, which makes PostgreSQL calls; its errors have the statement in their context, as if
  // it had run.
  template <class F>
  auto As(F&& f) const -> decltype(f()) {
    return Pg([&] {
      ErrorContextCallback context{error_context_stack, AddStatementToContext, Text()};
      error_context_stack = &context;
      const auto result = f();
      error_context_stack = context.previous;
      return result;
    });
  }

  // Runs a single INSERT with these parameters, none of them NULL, and returns the number of rows.
  // The transaction is one command further afterwards.
  uint64 Run(const Datum* values) const;

 private:
  static void AddStatementToContext(void* sql);
  char* Text() const { return const_cast<char*>(source_->query_string); }

  CachedPlanSource* source_;
  // A reference: the plan exists as long as this object, even if it is planned again meanwhile.
  CachedPlan* plan_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_INSERT_PLAN_H_
