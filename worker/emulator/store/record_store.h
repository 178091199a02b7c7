// Records on disk for `postbox emulator --data-dir`: of several kinds, each by its key. SQLite
// keeps them.
//
// A change is on disk when Apply() returns, as a whole or not at all: a process that is killed
// loses nothing. (It is not forced to the disk each time. A machine that loses its power may lose
// the last changes, and keeps all before them.)
//
// One process at a time has a directory: it holds a lock on a file there.
#ifndef POSTBOX_WORKER_EMULATOR_STORE_RECORD_STORE_H_
#define POSTBOX_WORKER_EMULATOR_STORE_RECORD_STORE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace postbox::emulator {

class RecordStore {
 public:
  struct Change {
    int kind = 0;
    std::string key;
    std::optional<std::string> value;  // none: the record is removed
    bool prefix = false;  // removes all records whose keys begin with `key`; it has no value
  };
  using Changes = std::vector<Change>;

  // Makes the directory if there is none. FAILED_PRECONDITION if another process has it, or what is
  // in it is of another version.
  static absl::StatusOr<std::unique_ptr<RecordStore>> Open(const std::string& directory);
  ~RecordStore();
  RecordStore(const RecordStore&) = delete;
  RecordStore& operator=(const RecordStore&) = delete;

  // On any thread. If the disk does not take it, the process ends: what is in memory would differ
  // from what is kept.
  void Apply(const Changes& changes);

  // All records of a kind in the order of their keys. Stops at the first error.
  absl::Status ForEach(
      int kind,
      absl::FunctionRef<absl::Status(absl::string_view key, absl::string_view value)> visit);

 private:
  explicit RecordStore(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Lock();
  absl::Status OpenDatabase();
  absl::Status CheckVersion();
  absl::Status Run(const char* sql);
  absl::StatusOr<sqlite3_stmt*> Prepare(const char* sql);
  absl::Status ApplyOne(const Change& change);
  absl::Status Problem(const char* what) const;

  const std::string directory_;
  int lock_file_ = -1;
  std::mutex mu_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* put_ = nullptr;
  sqlite3_stmt* remove_ = nullptr;
  sqlite3_stmt* remove_range_ = nullptr;
  sqlite3_stmt* all_of_kind_ = nullptr;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_STORE_RECORD_STORE_H_
