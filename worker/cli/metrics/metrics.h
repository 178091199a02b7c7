// `postbox metrics`: the metrics of the database, which postbox.metrics shows in SQL, as the text
// that Prometheus reads: once, or over HTTP.
//
// With --listen each scrape of /metrics asks the database over one connection, which is kept, and
// opened again when it is lost. A scrape ends within kScrapeTime, whatever the database does. One
// that fails is answered with status 503, the cause in a comment, and postbox_scrape_error 1.
#ifndef POSTBOX_WORKER_CLI_METRICS_METRICS_H_
#define POSTBOX_WORKER_CLI_METRICS_METRICS_H_

#include <string>

namespace postbox::cli {

struct MetricsOptions {
  std::string dsn;
  std::string listen;  // empty: once, to standard output
};

// Returns the exit status. With --listen it runs until SIGTERM or SIGINT.
int RunMetrics(const MetricsOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_METRICS_METRICS_H_
