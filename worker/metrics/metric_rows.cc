#include "worker/metrics/metric_rows.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace postbox::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricType TypeOf(const std::string& type) {
  if (type == "counter") return MetricType::Counter;
  if (type == "gauge") return MetricType::Gauge;
  if (type == "histogram") return MetricType::Histogram;
  return MetricType::Untyped;
}

// The name of the family of a row of a histogram, and what the row is of it: bucket, sum or count.
std::pair<std::string, std::string> SplitName(const std::string& name) {
  const size_t dash = name.rfind('_');
  if (dash == std::string::npos) return {name, ""};
  return {name.substr(0, dash), name.substr(dash + 1)};
}

using LabelMap = std::map<std::string, std::string>;

// A family, and where its metrics are by their labels: a database may have thousands of them.
struct IndexedFamily {
  MetricFamily family;
  std::map<LabelMap, size_t> places{};

  ClientMetric* Of(const LabelMap& labels) {
    const auto [at, is_new] = places.try_emplace(labels, family.metric.size());
    if (is_new) {
      ClientMetric& metric = family.metric.emplace_back();
      for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    }
    return &family.metric[at->second];
  }
};

void AddToHistogram(const MetricRow& row, std::string_view part, IndexedFamily* family) {
  LabelMap labels = row.labels;
  const auto bound = labels.extract("le");
  ClientMetric::Histogram* const histogram = &family->Of(labels)->histogram;
  if (part == "sum") {
    histogram->sample_sum = row.value;
  } else if (part == "count") {
    histogram->sample_count = static_cast<std::uint64_t>(row.value);
  } else if (!bound.empty()) {
    // strtod knows +Inf, too.
    histogram->bucket.push_back({.cumulative_count = static_cast<std::uint64_t>(row.value),
                                 .upper_bound = std::strtod(bound.mapped().c_str(), nullptr)});
  }
}

void Add(const MetricRow& row, ClientMetric* metric) {
  switch (TypeOf(row.type)) {
    case MetricType::Counter:
      metric->counter.value = row.value;
      break;
    case MetricType::Gauge:
      metric->gauge.value = row.value;
      break;
    default:
      metric->untyped.value = row.value;
  }
}

// The buckets in their order. The database reads the count after them, when it may be higher: what
// is counted is what the last bucket has, as Prometheus wants it.
void FinishHistograms(MetricFamily* family) {
  for (ClientMetric& metric : family->metric) {
    auto& buckets = metric.histogram.bucket;
    std::sort(buckets.begin(), buckets.end(), [](const auto& one, const auto& other) {
      return one.upper_bound < other.upper_bound;
    });
    if (!buckets.empty() && std::isinf(buckets.back().upper_bound)) {
      metric.histogram.sample_count = buckets.back().cumulative_count;
    }
  }
}

}  // namespace

std::vector<MetricFamily> FamiliesOf(const std::vector<MetricRow>& rows) {
  std::vector<IndexedFamily> families;
  std::map<std::string, size_t> known;
  for (const MetricRow& row : rows) {
    const bool histogram = TypeOf(row.type) == MetricType::Histogram;
    const auto [family_name, part] =
        histogram ? SplitName(row.name) : std::pair(row.name, std::string());
    const auto [at, is_new] = known.try_emplace(family_name, families.size());
    if (is_new) families.push_back({{family_name, row.help, TypeOf(row.type), {}}});
    IndexedFamily* const family = &families[at->second];
    if (histogram) {
      AddToHistogram(row, part, family);
    } else {
      Add(row, family->Of(row.labels));
    }
  }
  std::vector<MetricFamily> all;
  for (IndexedFamily& family : families) {
    FinishHistograms(&family.family);
    all.push_back(std::move(family.family));
  }
  return all;
}

std::string MetricsText(const std::vector<MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace postbox::metrics
