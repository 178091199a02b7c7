#include "worker/cli/console/metric_history.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

namespace postbox::cli {
namespace {

constexpr ChartSeries kTable[] = {
    {"published", "events/s", "publication", true, true, "postbox_published_events_total", nullptr},
    {"errors", "errors/s", "publication", true, true, "postbox_publish_errors_total", nullptr},
    {"oldest_ready", "s", "publication", false, false, "postbox_oldest_pending_age_seconds",
     nullptr},
    {"pending", "events", "publication", false, true, "postbox_pending_events_estimate", nullptr},
    {"parked_keys", "keys", "publication", false, true, "postbox_parked_keys", nullptr},
    {"applied", "events/s", "inbox", true, true, "postbox_applied_events_total", "{applied}"},
    {"rejected", "events/s", "inbox", true, true, "postbox_applied_events_total",
     "{rejected,parked}"},
    {"dead_letters", "events", "inbox", false, true, "postbox_dead_letters_at_least", nullptr},
    {"parked_keys", "keys", "inbox", false, true, "postbox_inbox_parked_keys_at_least", nullptr},
    {"received", "messages/s", "subscription", false, true, nullptr, nullptr},
    {"oldest_waiting", "s", "subscription", false, false, nullptr, nullptr},
};
constexpr size_t kPublished = 0;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

template <size_t n>
float& At(std::array<float, n>& ring, int64_t slot) {
  return ring[static_cast<size_t>(slot) % n];
}

// Empties the slots behind `before`, up to `slot`.
template <size_t n>
void Empty(std::array<float, n>& ring, int64_t before, int64_t slot) {
  const int64_t skipped = std::min<int64_t>(slot - before, n);
  for (int64_t one = slot - skipped + 1; one <= slot; ++one) At(ring, one) = kNone;
}

std::string PartKey(const MetricValue& value) {
  return std::to_string(value.series) + '\0' + value.object + '\0' + value.part;
}

double Merged(const ChartSeries& series, double left, double right) {
  if (std::isnan(left)) return right;
  if (std::isnan(right)) return left;
  return series.summed ? left + right : std::max(left, right);
}

}  // namespace

static_assert(std::size(kTable) * (MetricHistory::kMostObjects + 1) *
                  (MetricHistory::kSteps + MetricHistory::kCoarseSteps) * sizeof(float) <
              1'000'000);

std::span<const ChartSeries> ChartSeriesTable() { return kTable; }

int64_t MetricHistory::Now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void MetricHistory::Fail(const std::string& problem) {
  const std::lock_guard<std::mutex> lock(mutex_);
  problem_ = problem;
}

void MetricHistory::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ForgetCounters();
}

void MetricHistory::ForgetCounters() {
  counters_.clear();
  counted_.clear();
  last_time_ = 0;
}

double MetricHistory::Increase(const MetricValue& value, int64_t slot) {
  const std::string key = PartKey(value);
  const auto found = counters_.find(key);
  if (found == counters_.end()) {
    if (counters_.size() >= kMostParts) return kNone;
    counters_.emplace(key, Counter{value.value, slot});
    return counted_.contains({kTable[value.series].kind, value.object}) ? value.value : kNone;
  }
  const Counter before = std::exchange(found->second, Counter{value.value, slot});
  if (before.slot != last_slot_ || value.value < before.value) return kNone;
  return value.value - before.value;
}

size_t MetricHistory::ObjectsOf(size_t series) const {
  return static_cast<size_t>(
      std::distance(lines_.lower_bound({series, ""}), lines_.lower_bound({series + 1, ""})));
}

void MetricHistory::StartSlot(int64_t slot) {
  constexpr int kPerCoarse = kCoarseStep / kStep;
  for (auto& [key, line] : lines_) {
    Empty(line.fine, last_slot_, slot);
    Empty(line.coarse, last_slot_ / kPerCoarse, slot / kPerCoarse);
  }
  std::erase_if(lines_, [&](const auto& one) {
    return slot - one.second.last_slot >= int64_t{kCoarseSteps} * kPerCoarse;
  });
  std::erase_if(rates_, [&](const auto& one) { return slot - one.second.slot > kSteps; });
  last_slot_ = slot;
}

void MetricHistory::Put(const Key& key, double value) {
  if (std::isnan(value)) return;
  auto found = lines_.find(key);
  if (found == lines_.end()) {
    found = lines_.emplace(key, Stored{}).first;
    found->second.fine.fill(kNone);
    found->second.coarse.fill(kNone);
  }
  Stored& line = found->second;
  const int64_t coarse = last_slot_ / (kCoarseStep / kStep);
  if (line.coarse_slot != coarse) line.points = 0;
  line.coarse_slot = coarse;
  line.last_slot = last_slot_;
  At(line.fine, last_slot_) = static_cast<float>(value);
  float& point = At(line.coarse, coarse);
  const int points = line.points++;
  if (points == 0) {
    point = static_cast<float>(value);
  } else if (kTable[key.first].counter) {
    point += (static_cast<float>(value) - point) / static_cast<float>(points + 1);
  } else {
    point = std::max(point, static_cast<float>(value));
  }
}

void MetricHistory::KeepRate(const std::string& publication, double rate) {
  auto found = rates_.find(publication);
  if (found == rates_.end()) {
    if (rates_.size() >= kMostRates) return;
    found = rates_.emplace(publication, Rates{{}, 0}).first;
    found->second.values.fill(kNone);
  }
  Rates& kept = found->second;
  Empty(kept.values, kept.slot, last_slot_);
  kept.slot = last_slot_;
  At(kept.values, last_slot_) = static_cast<float>(rate);
}

void MetricHistory::Add(int64_t now, const std::vector<MetricValue>& values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t slot = now / kStep;
  if (slot < last_slot_) {  // the clock was set back
    lines_.clear();
    rates_.clear();
    ForgetCounters();
    last_slot_ = 0;
  }
  if (slot == last_slot_) return;
  const bool grows = last_time_ > 0 && now - last_time_ <= kLongestGap;
  const auto seconds = static_cast<double>(now - last_time_);
  std::map<Key, double> sums;
  decltype(counted_) counted;
  for (const MetricValue& one : values) {
    const ChartSeries& series = kTable[one.series];
    double value = one.value;
    if (series.counter) {
      counted.emplace(series.kind, one.object);
      const double increase = Increase(one, slot);
      value = grows ? increase / seconds : kNone;
    }
    const auto [sum, is_new] = sums.try_emplace({one.series, one.object}, value);
    if (is_new) continue;
    // A rate is not known if a part of it is not.
    sum->second = series.counter ? sum->second + value : Merged(series, sum->second, value);
  }
  counted_ = std::move(counted);
  StartSlot(slot);
  last_time_ = now;
  problem_.clear();
  std::map<size_t, double> others;
  for (const auto& [key, value] : sums) {
    if (key.first == kPublished) KeepRate(key.second, value);
    if (lines_.contains(key) || ObjectsOf(key.first) < kMostObjects) {
      Put(key, value);
    } else {
      const auto [sum, is_new] = others.try_emplace(key.first, value);
      if (!is_new) sum->second = Merged(kTable[key.first], sum->second, value);
    }
  }
  for (const auto& [series, value] : others) Put({series, ""}, value);
}

MetricHistory::Charts MetricHistory::Read(int64_t now, int range) const {
  const bool fine = range <= kStep * kSteps;
  Charts charts{.step = fine ? kStep : kCoarseStep, .times = {}, .lines = {}, .problem = {}};
  const std::lock_guard<std::mutex> lock(mutex_);
  charts.problem = problem_;
  // The slot of this moment is shown as soon as it has a sample.
  const int64_t last = last_slot_ * kStep / charts.step;
  const int64_t end = std::max(last, now / charts.step - 1);
  const int64_t count = std::min<int64_t>(range / charts.step, fine ? kSteps : kCoarseSteps);
  for (int64_t slot = end - count + 1; slot <= end; ++slot) {
    charts.times.push_back(slot * charts.step);
  }
  for (const auto& [key, stored] : lines_) {
    Line line{.series = &kTable[key.first], .object = key.second, .values = {}};
    bool any = false;
    for (int64_t slot = end - count + 1; slot <= end; ++slot) {
      const auto n = static_cast<size_t>(slot);
      const float value = slot > last ? kNone
                          : fine      ? stored.fine[n % kSteps]
                                      : stored.coarse[n % kCoarseSteps];
      any = any || !std::isnan(value);
      line.values.push_back(std::isnan(value) ? std::nullopt : std::optional<double>(value));
    }
    if (any) charts.lines.push_back(std::move(line));
  }
  return charts;
}

std::optional<double> MetricHistory::Rate(int64_t now, const std::string& publication) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = rates_.find(publication);
  if (found == rates_.end()) return std::nullopt;
  const Rates& kept = found->second;
  double sum = 0;
  int count = 0;
  for (int64_t slot = std::max<int64_t>(now / kStep - 4, kept.slot - 3); slot <= kept.slot;
       ++slot) {
    const float value = kept.values[static_cast<size_t>(slot) % kept.values.size()];
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional<double>(sum / count);
}

}  // namespace postbox::cli
