// The rows of postbox.metrics as families of metrics, and families as the text that Prometheus
// reads.
//
// A histogram is spread over rows, as Prometheus names its series: NAME_bucket with the label `le`,
// NAME_sum and NAME_count. Rows of a family may come in any order; families come in the order of
// their first rows.
#ifndef POSTBOX_WORKER_METRICS_METRIC_ROWS_H_
#define POSTBOX_WORKER_METRICS_METRIC_ROWS_H_

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

namespace postbox::metrics {

struct MetricRow {
  std::string name;
  std::string type;  // counter, gauge or histogram; any other is written as untyped
  std::string help;
  std::map<std::string, std::string> labels;
  double value = 0;
};

std::vector<prometheus::MetricFamily> FamiliesOf(const std::vector<MetricRow>& rows);

// The text exposition format, version 0.0.4, and its media type.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace postbox::metrics

#endif  // POSTBOX_WORKER_METRICS_METRIC_ROWS_H_
