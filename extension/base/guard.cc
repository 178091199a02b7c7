// See guard.h. Here are the two moments at which an error exists outside of both worlds: as a
// PlainError between the last C++ frame and ereport, and as an ErrorData between PG_CATCH and
// throw.
#include "extension/base/guard.h"

namespace postbox::guard_internal {

struct PlainError {
  int sqlstate;
  char* message;
  char* detail;
  char* hint;
  char* context;
  char* detail_log;
  char* schema_name;
  char* table_name;
  char* column_name;
  char* datatype_name;
  char* constraint_name;
  char* internal_query;
  int cursor_position;
  int internal_position;
  bool raised_by_postgres;
};

namespace {

char* Copy(const std::string& text) { return text.empty() ? nullptr : strdup(text.c_str()); }

PlainError* Make(const PostgresError& error) noexcept {
  auto* plain = static_cast<PlainError*>(std::calloc(1, sizeof(PlainError)));
  if (plain == nullptr) return nullptr;
  plain->sqlstate = error.sqlstate;
  plain->message = Copy(error.message);
  plain->detail = Copy(error.detail);
  plain->hint = Copy(error.hint);
  plain->context = Copy(error.context);
  plain->detail_log = Copy(error.detail_log);
  plain->schema_name = Copy(error.schema_name);
  plain->table_name = Copy(error.table_name);
  plain->column_name = Copy(error.column_name);
  plain->datatype_name = Copy(error.datatype_name);
  plain->constraint_name = Copy(error.constraint_name);
  plain->internal_query = Copy(error.internal_query);
  plain->cursor_position = error.cursor_position;
  plain->internal_position = error.internal_position;
  plain->raised_by_postgres = error.raised_by_postgres;
  return plain;
}

// An exception that is no PostgresError is a defect: the user gets one sentence, the server's log
// what() said.
PlainError* MakeInternal(const char* what) noexcept {
  auto* plain = static_cast<PlainError*>(std::calloc(1, sizeof(PlainError)));
  if (plain == nullptr) return nullptr;
  plain->sqlstate = ERRCODE_INTERNAL_ERROR;
  plain->message = strdup("internal error in postbox");
  plain->detail_log = strdup(what);
  return plain;
}

void Free(PlainError* plain) {
  for (char* text : {plain->message, plain->detail, plain->hint, plain->context, plain->detail_log,
                     plain->schema_name, plain->table_name, plain->column_name,
                     plain->datatype_name, plain->constraint_name, plain->internal_query}) {
    std::free(text);
  }
  std::free(plain);
}

char* PallocCopy(const char* text) { return text == nullptr ? nullptr : pstrdup(text); }

// In a PG_CATCH block: takes the error off PostgreSQL's stack. nullptr if there was no memory to
// copy it.
ErrorData* TakeErrorData(MemoryContext context) {
  ErrorData* volatile data = nullptr;
  MemoryContextSwitchTo(context);
  PG_TRY();
  { data = CopyErrorData(); }
  PG_CATCH();
  { data = nullptr; }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  FlushErrorState();
  return data;
}

}  // namespace

PlainError* TakeCurrentException() noexcept {
  try {
    throw;
  } catch (const PostgresError& error) {
    return Make(error);
  } catch (const std::bad_alloc&) {
    return nullptr;
  } catch (const std::exception& error) {
    return MakeInternal(error.what());
  } catch (...) {
    return MakeInternal("an exception of unknown type");
  }
}

void Raise(PlainError* error) {
  if (error == nullptr) ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));

  // From here on nothing but palloc's memory: if one of these calls fails, at most a few bytes of
  // malloc's stay behind.
  auto* data = static_cast<ErrorData*>(palloc0(sizeof(ErrorData)));
  data->elevel = ERROR;
  data->output_to_server = true;
  data->output_to_client = true;
  data->sqlerrcode = error->sqlstate;
  data->message = PallocCopy(error->message);
  data->detail = PallocCopy(error->detail);
  data->hint = PallocCopy(error->hint);
  data->context = PallocCopy(error->context);
  data->detail_log = PallocCopy(error->detail_log);
  data->schema_name = PallocCopy(error->schema_name);
  data->table_name = PallocCopy(error->table_name);
  data->column_name = PallocCopy(error->column_name);
  data->datatype_name = PallocCopy(error->datatype_name);
  data->constraint_name = PallocCopy(error->constraint_name);
  data->internalquery = PallocCopy(error->internal_query);
  data->cursorpos = error->cursor_position;
  data->internalpos = error->internal_position;
  data->filename = __FILE__;
  data->lineno = __LINE__;
  data->funcname = __func__;
  data->assoc_context = ErrorContext;
  const bool raised_by_postgres = error->raised_by_postgres;
  Free(error);

  // An error that PostgreSQL raised has been through the context callbacks already; a new one has
  // not.
  if (raised_by_postgres) ReThrowError(data);
  ::ThrowErrorData(data);
  pg_unreachable();
}

void CallPostgres(void (*call)(void*), void* argument) {
  MemoryContext context = CurrentMemoryContext;
  ErrorData* volatile error = nullptr;
  volatile bool failed = false;
  // An exception must not pass PG_END_TRY, or the server's stack of handlers would keep a frame
  // that is gone: the next ereport would jump into it.
  std::exception_ptr thrown_inside;
  PG_TRY();
  {
    try {
      call(argument);
    } catch (...) {
      thrown_inside = std::current_exception();
    }
  }
  PG_CATCH();
  {
    failed = true;
    error = TakeErrorData(context);
  }
  PG_END_TRY();
  if (thrown_inside != nullptr) std::rethrow_exception(thrown_inside);
  if (!failed) return;
  if (error == nullptr) throw std::bad_alloc();
  PostgresError thrown(*error);
  FreeErrorData(error);
  throw thrown;
}

}  // namespace postbox::guard_internal
