// Samples postbox.metrics for the charts, as the role of --dsn, on a thread with a connection of
// its own. What it cannot read, and why, is told by MetricHistory. It connects again after the
// connection was lost, for example when the server has restarted.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_METRIC_SAMPLER_H_
#define POSTBOX_WORKER_CLI_CONSOLE_METRIC_SAMPLER_H_

#include <memory>
#include <string>
#include <thread>

#include "worker/cli/console/metric_history.h"
#include "worker/puller/database.h"

namespace postbox::cli {

class MetricSampler {
 public:
  // `interrupt`: the thread ends when this descriptor becomes readable. `history` outlives it.
  MetricSampler(std::string dsn, int interrupt, MetricHistory* history);
  ~MetricSampler() { Join(); }
  MetricSampler(const MetricSampler&) = delete;
  MetricSampler& operator=(const MetricSampler&) = delete;

  // Returns when the thread has ended.
  void Join();

 private:
  void Run();
  void Sample();
  bool Connect();
  void Fail(const std::string& problem);
  // False if the thread is to end.
  bool WaitForNext() const;

  const std::string dsn_;
  const int interrupt_;
  MetricHistory* const history_;
  std::unique_ptr<puller::Connection> connection_;
  std::thread thread_;  // the last member
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_METRIC_SAMPLER_H_
