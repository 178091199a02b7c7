// A transaction around a lambda.
//
// Whatever is thrown in between, a PostgresError or a C++ exception, aborts the transaction and
// goes on to the caller, which may go on working: after the abort nothing of the failed transaction
// is left. No transaction is open while the worker waits.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_TRANSACTION_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_TRANSACTION_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

// Whether COMMIT waits until the transaction is on disk.
enum class Durability { kAtCommit, kSoon };

// A transaction that begins when it is needed. `activity` shows in pg_stat_activity and must
// be a literal.
class Transaction {
 public:
  explicit Transaction(const char* activity, Durability durability = Durability::kAtCommit)
      : activity_(activity), durability_(durability) {}
  // The transaction that the caller has begun and will end by itself, with SPI connected.
  static Transaction OfCaller() { return Transaction(true); }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // It is a step on this outbox and may take so long (step_limit.h). To be called before it begins.
  void Limit(Oid outbox, std::chrono::milliseconds time) {
    outbox_ = outbox;
    time_ = time;
  }

  // Whether the last transactions have counted something that the server's statistics do not have.
  static bool HasCounts() { return has_counts_; }
  // Adds it to them now. A commit does so by itself, but not more often than once a second.
  static void ReportCounts();

  // Begins it, with SPI connected and a snapshot, unless it has begun.
  void Begin();

  // Whether it has begun and was committed.
  bool committed() const { return committed_; }

  // Runs `f`, then commits what has begun; an exception aborts it. If it was cancelled because it
  // went over its limits, the exception says so.
  template <class F>
  void Run(F&& f) {
    try {
      f();
      Commit();
    } catch (...) {
      Abort();
      ThrowIfOverLimit();
      throw;
    }
  }

 private:
  explicit Transaction(bool begun)
      : activity_(nullptr), durability_(Durability::kAtCommit), begun_(begun) {}
  void Commit();
  void Abort();
  void ThrowIfOverLimit() const;
  void EndLimit();
  static void ReleaseAdvisoryLocks();

  static inline bool has_counts_ = false;
  const char* const activity_;
  const Durability durability_;
  bool begun_ = false;
  bool committed_ = false;
  Oid outbox_ = InvalidOid;
  std::chrono::milliseconds time_{0};  // 0: no limit
  bool limited_ = false;               // it has begun with a limit
};

// Runs `f` in a transaction.
template <class F>
void InTransaction(const char* activity, F&& f) {
  Transaction transaction(activity);
  transaction.Run([&] {
    transaction.Begin();
    f();
  });
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_TRANSACTION_H_
