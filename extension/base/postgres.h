// The one way into PostgreSQL's headers.
//
// PostgreSQL's headers are C: they need extern "C", they define macros (printf, Min, ERROR,
// gettext, ...) that break the C++ standard headers, and before C++17 they could use `register`.
// So: the standard headers that we use come first, then PostgreSQL's, inside extern "C" and without
// the warnings that are not ours. A file that needs another PostgreSQL header includes this one
// first and wraps the other in extern "C" in the same way.
//
// A file that includes this header must not include gRPC, protobuf or abseil (the build refuses
// it).
#ifndef POSTBOX_EXTENSION_BASE_POSTGRES_H_
#define POSTBOX_EXTENSION_BASE_POSTGRES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <locale>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wregister"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wpedantic"

// Angle brackets, because quotes would find this file.
extern "C" {
#include <postgres.h>
// This line keeps postgres.h first: everything below depends on it.
#include <access/genam.h>
#include <access/htup_details.h>
#include <access/relation.h>
#include <access/table.h>
#include <access/transam.h>
#include <access/tupdesc.h>
#include <access/xact.h>
#include <catalog/dependency.h>
#include <catalog/namespace.h>
#include <catalog/pg_class.h>
#include <catalog/pg_database.h>
#include <catalog/pg_extension.h>
#include <catalog/pg_namespace.h>
#include <catalog/pg_proc.h>
#include <catalog/pg_type.h>
#include <commands/dbcommands.h>
#include <commands/extension.h>
#include <executor/spi.h>
#include <fmgr.h>
#include <funcapi.h>
#include <lib/stringinfo.h>
#include <mb/pg_wchar.h>
#include <miscadmin.h>
#include <nodes/makefuncs.h>
#include <pgstat.h>
#include <storage/ipc.h>
#include <storage/latch.h>
#include <storage/lwlock.h>
#include <storage/proc.h>
#include <storage/shmem.h>
#include <utils/acl.h>
#include <utils/array.h>
#include <utils/builtins.h>
#include <utils/catcache.h>
#include <utils/elog.h>
#include <utils/guc.h>
#include <utils/guc_tables.h>
#include <utils/inval.h>
#include <utils/json.h>
#include <utils/jsonb.h>
#include <utils/jsonfuncs.h>
#include <utils/lsyscache.h>
#include <utils/memutils.h>
#include <utils/numeric.h>
#include <utils/rel.h>
#include <utils/rls.h>
#include <utils/snapmgr.h>
#include <utils/syscache.h>
#include <utils/timestamp.h>
#include <utils/tuplestore.h>
#include <utils/uuid.h>
#include <utils/varlena.h>
#include <utils/wait_event.h>
#if PG_VERSION_NUM >= 160000
#include <varatt.h>
#endif
}

#pragma GCC diagnostic pop

// PostgreSQL replaces these by its own functions through macros, which would make std::snprintf
// an error.
#undef vsnprintf
#undef snprintf
#undef vsprintf
#undef sprintf
#undef vfprintf
#undef fprintf
#undef vprintf
#undef printf
#undef strerror
#undef strerror_r

#include "extension/base/version.h"  // IWYU pragma: export

#endif  // POSTBOX_EXTENSION_BASE_POSTGRES_H_
