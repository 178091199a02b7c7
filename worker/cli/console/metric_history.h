// The charts of the console: what postbox.metrics said in the last hours, in memory.
//
// A sample has counters and gauges of objects, which are publications, inboxes and subscriptions. A
// counter becomes a rate: what it has grown since the sample before. It has no rate, so that the
// line has a gap and no spike,
//   - in the first sample, or after Forget(), which a new connection calls: it may be to another
//     server, or to one that has counted from 0 again;
//   - if it has become smaller, or has come back after it was missing;
//   - if the sample before is more than kLongestGap old;
//   - if its object had no counter in the sample before: it may have another name now.
// Another counter of an object begins at 0: a kind of error that occurs for the first time.
//
// The last hour has a point for each kStep seconds, the last 6 hours have one for each kCoarseStep:
// the mean of rates, the largest of gauges. Of each series the first kMostObjects objects have a
// line; the others together have one. So all points take less than 1 MB.
//
// The time is an argument, in Unix seconds. Thread-safe.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_METRIC_HISTORY_H_
#define POSTBOX_WORKER_CLI_CONSOLE_METRIC_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace postbox::cli {

// What has a chart. `metric` is its name in postbox.metrics, null for what is in
// postbox.subscription_status.
struct ChartSeries {
  const char* name;
  const char* unit;
  const char* kind;  // of the objects, and the label that has their name
  bool counter;
  bool summed;  // of several objects: else the largest counts
  const char* metric;
  const char* outcomes;  // an array of SQL, of the label `outcome`; null: all
};
std::span<const ChartSeries> ChartSeriesTable();

struct MetricValue {
  size_t series;  // in the table
  std::string object;
  std::string part;  // counters of several parts are added
  double value;
};

class MetricHistory {
 public:
  static int64_t Now();  // by the clock of the system
  static constexpr int kStep = 15;
  static constexpr int kSteps = 240;
  static constexpr int kCoarseStep = 60;
  static constexpr int kCoarseSteps = 360;
  static constexpr int kLongestGap = 3 * kStep;
  static constexpr size_t kMostObjects = 32;
  // Counters whose last values are kept, and publications whose rates are.
  static constexpr size_t kMostParts = 20000;
  static constexpr size_t kMostRates = 1000;

  struct Line {
    const ChartSeries* series;
    std::string object;  // empty: the others
    std::vector<std::optional<double>> values;
  };
  struct Charts {
    int step;
    std::vector<int64_t> times;
    std::vector<Line> lines;  // those that have a value
    std::string problem;      // why there is no sample now; empty if there is one
  };

  void Add(int64_t now, const std::vector<MetricValue>& values);
  // There was no sample, and why.
  void Fail(const std::string& problem);
  // What comes next is not compared with what was.
  void Forget();

  Charts Read(int64_t now, int range) const;
  // How many events of a publication were published per second in the last minute.
  std::optional<double> Rate(int64_t now, const std::string& publication) const;

 private:
  // NaN: no value.
  struct Stored {
    std::array<float, kSteps> fine;
    std::array<float, kCoarseSteps> coarse;
    int64_t coarse_slot = -1;  // into which `points` went
    int points = 0;
    int64_t last_slot = 0;  // with a value
  };
  struct Counter {
    double value;
    int64_t slot;
  };
  struct Rates {
    std::array<float, 4> values;
    int64_t slot;  // of the last one
  };
  using Key = std::pair<size_t, std::string>;  // series and object

  void ForgetCounters();
  // NaN if there is none.
  double Increase(const MetricValue& value, int64_t slot);
  void StartSlot(int64_t slot);
  void Put(const Key& key, double value);
  void KeepRate(const std::string& publication, double rate);
  size_t ObjectsOf(size_t series) const;

  mutable std::mutex mutex_;
  std::map<Key, Stored> lines_;  // guarded, as all that follows
  std::map<std::string, Counter> counters_;
  std::set<std::pair<std::string, std::string>> counted_;  // kinds and objects in the last sample
  std::map<std::string, Rates> rates_;
  int64_t last_slot_ = 0;  // of the last sample; 0: none
  int64_t last_time_ = 0;  // of the last sample that counters can grow from
  std::string problem_ = "there was no sample yet";
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_METRIC_HISTORY_H_
