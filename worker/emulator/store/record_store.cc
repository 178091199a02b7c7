#include "worker/emulator/store/record_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/base/line_queue.h"

namespace postbox::emulator {
namespace {

// In the file's header: whose it is ("Pbox"), and how its records are to be read.
constexpr int kApplication = 0x50626F78;
constexpr int kVersion = 1;

// Resets a statement at the end, so that it holds no transaction open.
class Use {
 public:
  explicit Use(sqlite3_stmt* statement) : statement_(statement) {}
  ~Use() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  sqlite3_stmt* const statement_;
};

void Bind(sqlite3_stmt* statement, int at, absl::string_view bytes) {
  // An empty blob, not NULL.
  sqlite3_bind_blob64(statement, at, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_STATIC);
}

absl::string_view Blob(sqlite3_stmt* statement, int column) {
  const void* bytes = sqlite3_column_blob(statement, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
  return bytes == nullptr ? absl::string_view()
                          : absl::string_view(static_cast<const char*>(bytes), size);
}

// The first key that does not begin with `prefix`; empty if there is none.
std::string Behind(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xFF') prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStore>> RecordStore::Open(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot create directory ", directory, ": ", error.message()));
  }
  std::unique_ptr<RecordStore> store(new RecordStore(directory));
  if (auto s = store->Lock(); !s.ok()) return s;
  if (auto s = store->OpenDatabase(); !s.ok()) return s;
  return store;
}

RecordStore::~RecordStore() {
  for (sqlite3_stmt* statement : {put_, remove_, remove_range_, all_of_kind_}) {
    sqlite3_finalize(statement);
  }
  sqlite3_close(database_);
  if (lock_file_ >= 0) close(lock_file_);
}

absl::Status RecordStore::Problem(const char* what) const {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", what, " in ", directory_, ": ", sqlite3_errmsg(database_)));
}

absl::Status RecordStore::Lock() {
  const std::string path = absl::StrCat(directory_, "/lock");
  lock_file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_file_ < 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  if (flock(lock_file_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      errno == EWOULDBLOCK ? absl::StrCat("another emulator uses ", directory_)
                           : absl::StrCat("cannot lock ", path, ": ", strerror(errno)));
}

absl::Status RecordStore::OpenDatabase() {
  const std::string path = absl::StrCat(directory_, "/emulator.db");
  if (sqlite3_open(path.c_str(), &database_) != SQLITE_OK) return Problem("open emulator.db");
  // One process has the file, so the index of the log needs no shared memory.
  for (const char* sql : {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL",
                          "PRAGMA synchronous = NORMAL"}) {
    if (auto s = Run(sql); !s.ok()) return s;
  }
  if (auto s = CheckVersion(); !s.ok()) return s;
  struct {
    sqlite3_stmt** statement;
    const char* sql;
  } const statements[] = {
      {&put_,
       "INSERT INTO record (kind, key, value) VALUES (?1, ?2, ?3) "
       "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"},
      {&remove_, "DELETE FROM record WHERE kind = ?1 AND key = ?2"},
      {&remove_range_, "DELETE FROM record WHERE kind = ?1 AND key >= ?2 AND key < ?3"},
      {&all_of_kind_, "SELECT key, value FROM record WHERE kind = ?1 ORDER BY key"},
  };
  for (const auto& [statement, sql] : statements) {
    auto prepared = Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *prepared;
  }
  return absl::OkStatus();
}

absl::Status RecordStore::CheckVersion() {
  const auto number = [this](const char* sql) -> absl::StatusOr<int> {
    auto statement = Prepare(sql);
    if (!statement.ok()) return statement.status();
    const bool found = sqlite3_step(*statement) == SQLITE_ROW;
    const int value = found ? sqlite3_column_int(*statement, 0) : 0;
    sqlite3_finalize(*statement);
    if (!found) return Problem("read emulator.db");
    return value;
  };
  const auto tables = number("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();
  if (*tables == 0) {
    return Run(absl::StrCat("BEGIN; PRAGMA application_id = ", kApplication,
                            "; PRAGMA user_version = ", kVersion,
                            "; CREATE TABLE record (kind INTEGER NOT NULL, key BLOB NOT NULL, "
                            "value BLOB NOT NULL, UNIQUE (kind, key)); COMMIT")
                   .c_str());
  }
  const auto application = number("PRAGMA application_id");
  const auto version = number("PRAGMA user_version");
  if (!application.ok()) return application.status();
  if (!version.ok()) return version.status();
  if (*application == kApplication && *version == kVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(directory_, "/emulator.db was not made by an emulator of this version: ",
                   "use another directory, or remove it"));
}

absl::Status RecordStore::Run(const char* sql) {
  return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : Problem("prepare emulator.db");
}

absl::StatusOr<sqlite3_stmt*> RecordStore::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
      SQLITE_OK) {
    return Problem("read emulator.db");
  }
  return statement;
}

absl::Status RecordStore::ApplyOne(const Change& change) {
  const std::string end = change.prefix ? Behind(change.key) : "";
  sqlite3_stmt* statement = change.value ? put_ : change.prefix ? remove_range_ : remove_;
  const Use use(statement);
  sqlite3_bind_int(statement, 1, change.kind);
  Bind(statement, 2, change.key);
  if (change.value) Bind(statement, 3, *change.value);
  if (change.prefix) Bind(statement, 3, end);
  return sqlite3_step(statement) == SQLITE_DONE ? absl::OkStatus() : Problem("write emulator.db");
}

void RecordStore::Apply(const Changes& changes) {
  const std::lock_guard<std::mutex> lock(mu_);
  absl::Status status = Run("BEGIN IMMEDIATE");
  for (auto at = changes.begin(); status.ok() && at != changes.end(); ++at) status = ApplyOne(*at);
  if (status.ok()) status = Run("COMMIT");
  if (status.ok()) return;
  StandardError().Push(absl::StrCat("postbox emulator: ", status.message(),
                                    "; the emulator stops; no confirmed change is lost\n"));
  StandardError().Finish();
  std::_Exit(1);
}

absl::Status RecordStore::ForEach(
    int kind, absl::FunctionRef<absl::Status(absl::string_view, absl::string_view)> visit) {
  const std::lock_guard<std::mutex> lock(mu_);
  const Use use(all_of_kind_);
  sqlite3_bind_int(all_of_kind_, 1, kind);
  for (;;) {
    const int step = sqlite3_step(all_of_kind_);
    if (step == SQLITE_DONE) return absl::OkStatus();
    if (step != SQLITE_ROW) return Problem("read emulator.db");
    if (auto s = visit(Blob(all_of_kind_, 0), Blob(all_of_kind_, 1)); !s.ok()) return s;
  }
}

}  // namespace postbox::emulator
