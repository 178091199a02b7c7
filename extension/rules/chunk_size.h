// How many rows the next chunk of a backfill has.
//
// A chunk locks its rows until it commits, so its time has a ceiling. The size grows slowly and
// shrinks fast: a full chunk within half of the ceiling adds to the size, one above the ceiling
// leaves what would have fitted into half of it, and one that has to give way to other
// transactions halves it.
#ifndef POSTBOX_EXTENSION_RULES_CHUNK_SIZE_H_
#define POSTBOX_EXTENSION_RULES_CHUNK_SIZE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace postbox {

class ChunkSize {
 public:
  using Duration = std::chrono::microseconds;

  static constexpr int kFirst = 100;
  static constexpr int kMost = 5000;
  static constexpr int kStep = 250;

  // `ceiling`: positive.
  explicit ChunkSize(Duration ceiling) : ceiling_(ceiling) {}

  int rows() const { return rows_; }

  // A chunk of so many rows has taken this time. Only a full one shows that more would fit.
  void Done(int rows, Duration took) {
    if (took > ceiling_) {
      const std::int64_t fitting = rows * (ceiling_.count() / 2) / took.count();
      rows_ = static_cast<int>(std::clamp<std::int64_t>(fitting, 1, rows_));
    } else if (rows >= rows_ && took * 2 <= ceiling_) {
      rows_ = std::min(rows_ + std::min(rows_, kStep), kMost);
    }
  }

  // The chunk was rolled back, because another transaction holds one of its rows.
  void GaveWay() { rows_ = std::max(rows_ / 2, 1); }

 private:
  Duration ceiling_;
  int rows_ = kFirst;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_CHUNK_SIZE_H_
