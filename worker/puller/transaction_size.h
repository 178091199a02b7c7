// How many events a transaction of an applier may have.
//
// It is halved when one failed that may have been too large, and doubled when several in a row have
// fitted and have taken less than a quarter of statement_timeout. No threads.
#ifndef POSTBOX_WORKER_PULLER_TRANSACTION_SIZE_H_
#define POSTBOX_WORKER_PULLER_TRANSACTION_SIZE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace postbox::puller {

class TransactionSize {
 public:
  // After so many full transactions in a row that succeed, transactions become larger.
  static constexpr int kGrowAfter = 4;

  // At most `most` events. `statement_timeout`: 0 if there is none.
  TransactionSize(size_t most, std::chrono::milliseconds statement_timeout)
      : most_(most), statement_timeout_(statement_timeout), limit_(most) {}

  size_t limit() const { return limit_; }

  // A transaction of so many events failed, perhaps because of their number.
  void Failed(size_t events) {
    if (events <= 1) return;
    limit_ = std::max<size_t>(1, std::min(limit_, events) / 2);
    fitted_ = 0;
  }
  void Succeeded(size_t events, std::chrono::milliseconds took) {
    if (events < limit_ || limit_ >= most_) return;
    if (statement_timeout_.count() > 0 && took * 4 > statement_timeout_) return;
    if (++fitted_ < kGrowAfter) return;
    limit_ = std::min(most_, limit_ * 2);
    fitted_ = 0;
  }

 private:
  const size_t most_;
  const std::chrono::milliseconds statement_timeout_;
  size_t limit_;
  int fitted_ = 0;  // transactions of limit_ events that have succeeded since the last change
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_TRANSACTION_SIZE_H_
