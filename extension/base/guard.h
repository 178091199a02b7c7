// The border between C++ and PostgreSQL, in both directions.
//
// PostgreSQL reports an error by longjmp (ereport), C++ by an exception. Neither may cross the
// other's frames:
//  - an exception that leaves an extern "C" function terminates the backend, and with it the whole
//    cluster;
//  - a longjmp over a frame that owns C++ objects skips their destructors (undefined behaviour).
//
// So there are two functions, and every crossing goes through one of them:
//  - Guarded(f): at every extern "C" entry. Runs C++; an exception becomes ereport(ERROR) after
//    every C++ frame is gone.
//  - Pg(f): around every call of PostgreSQL that can ereport, made from a frame that owns C++
//    objects. The ereport becomes a PostgresError. `f` itself is skipped by the longjmp: it must
//    not own C++ objects (captured references are fine), and what it returns must be trivially
//    destructible.
//
// After Pg() threw, the transaction is in the state of an error: do nothing but unwind (let Guarded
// raise it again) or abort the subtransaction that was begun around it. Never swallow it.
#ifndef POSTBOX_EXTENSION_BASE_GUARD_H_
#define POSTBOX_EXTENSION_BASE_GUARD_H_

#include "extension/base/postgres.h"

namespace postbox {

// An ereport(ERROR) as a C++ value: everything of ErrorData that a client or the log can show.
class PostgresError : public std::exception {
 public:
  PostgresError(int sqlstate, std::string message, std::string detail = "", std::string hint = "")
      : sqlstate(sqlstate),
        message(std::move(message)),
        detail(std::move(detail)),
        hint(std::move(hint)) {}

  // Copies `data`, which stays the caller's.
  explicit PostgresError(const ErrorData& data)
      : sqlstate(data.sqlerrcode),
        message(Text(data.message)),
        detail(Text(data.detail)),
        hint(Text(data.hint)),
        context(Text(data.context)),
        detail_log(Text(data.detail_log)),
        schema_name(Text(data.schema_name)),
        table_name(Text(data.table_name)),
        column_name(Text(data.column_name)),
        datatype_name(Text(data.datatype_name)),
        constraint_name(Text(data.constraint_name)),
        internal_query(Text(data.internalquery)),
        cursor_position(data.cursorpos),
        internal_position(data.internalpos),
        raised_by_postgres(true) {}

  const char* what() const noexcept override { return message.c_str(); }

  // The five characters of the SQLSTATE, e.g. "23505".
  std::string SqlState() const { return unpack_sql_state(sqlstate); }

  int sqlstate;  // as made by MAKE_SQLSTATE
  std::string message;
  std::string detail;
  std::string hint;
  std::string context;
  std::string detail_log;
  std::string schema_name;
  std::string table_name;
  std::string column_name;
  std::string datatype_name;
  std::string constraint_name;
  std::string internal_query;
  int cursor_position = 0;
  int internal_position = 0;
  // Raised by ereport (its context is complete), not by Throw().
  bool raised_by_postgres = false;

 private:
  static std::string Text(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
  }
};

// Throws a PostgresError: the way C++ code of Postbox reports an error. Guarded() turns it into
// ereport(ERROR).
[[noreturn]] inline void Throw(int sqlstate, std::string message, std::string detail = "",
                               std::string hint = "") {
  throw PostgresError(sqlstate, std::move(message), std::move(detail), std::move(hint));
}

namespace guard_internal {

// An error with no C++ object in it, in malloc's memory: what is carried out of the last C++ frame.
struct PlainError;

// Makes a PlainError of the exception being handled. Returns nullptr if there is no memory. Call it
// in a catch block.
PlainError* TakeCurrentException() noexcept;

// Raises `error` by ereport or ReThrowError, and frees it. nullptr is "out of memory".
[[noreturn]] void Raise(PlainError* error);

// Calls `call(argument)` in PG_TRY; throws PostgresError if it raised an error.
void CallPostgres(void (*call)(void*), void* argument);

}  // namespace guard_internal

// Runs `f`; turns any exception into ereport(ERROR). The caller must own no C++ objects. What `f`
// returns must be plain.
template <class F>
auto Guarded(F&& f) -> decltype(f()) {
  using Result = decltype(f());
  static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>,
                "the longjmp would skip a destructor");
  guard_internal::PlainError* error = nullptr;
  // The raise is outside of the catch block: there, the exception object and all frames of `f`
  // are destroyed.
  if constexpr (std::is_void_v<Result>) {
    try {
      f();
      return;
    } catch (...) {
      error = guard_internal::TakeCurrentException();
    }
  } else {
    static_assert(std::is_trivially_destructible_v<Result>, "the longjmp would skip a destructor");
    try {
      return f();
    } catch (...) {
      error = guard_internal::TakeCurrentException();
    }
  }
  guard_internal::Raise(error);
}

// Runs `f` (PostgreSQL calls); an ereport(ERROR) in it is thrown as PostgresError.
template <class F>
auto Pg(F&& f) -> decltype(f()) {
  using Result = decltype(f());
  // The result is in memory, not in a register that the longjmp could clobber.
  if constexpr (std::is_void_v<Result>) {
    auto* function = std::addressof(f);
    guard_internal::CallPostgres(
        [](void* argument) { (**static_cast<decltype(function)*>(argument))(); }, &function);
  } else {
    static_assert(std::is_trivially_destructible_v<Result>, "the longjmp would skip a destructor");
    struct Call {
      decltype(std::addressof(f)) function;
      Result result;
    } call{std::addressof(f), Result{}};
    guard_internal::CallPostgres(
        [](void* argument) {
          auto* call = static_cast<Call*>(argument);
          call->result = (*call->function)();
        },
        &call);
    return call.result;
  }
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_GUARD_H_
