#include "worker/cli/metrics/metrics.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "worker/cli/base/open_place.h"
#include "worker/cli/base/operator_session.h"
#include "worker/metrics/http_server.h"
#include "worker/metrics/metric_rows.h"
#include "worker/puller/database.h"
#include "worker/puller/signals.h"

namespace postbox::cli {
namespace {

// Prometheus waits 10 s for a scrape, unless it is told otherwise.
constexpr std::chrono::seconds kScrapeTime{8};
constexpr puller::TransactionLimits kLimits{.read_only = true,
                                            .statement_timeout = std::chrono::seconds(5),
                                            .lock_timeout = std::chrono::seconds(1),
                                            .answer_time = std::chrono::seconds(1)};
constexpr char kQuery[] =
    "SELECT name, type, help, labels::text, value::text FROM postbox.metrics WHERE value IS NOT "
    "NULL";
constexpr char kScrapeError[] = "postbox_scrape_error";

// What the database says, or why it says nothing. For one thread.
class Scraper {
 public:
  explicit Scraper(std::string dsn)
      : dsn_(std::move(dsn)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {}
  ~Scraper() {
    connection_.reset();
    if (timer_ >= 0) close(timer_);
  }
  Scraper(const Scraper&) = delete;
  Scraper& operator=(const Scraper&) = delete;

  std::optional<std::vector<metrics::MetricRow>> Scrape() {
    // Readable when the time is over, which ends every wait.
    const itimerspec time{.it_interval = {},
                          .it_value = {.tv_sec = kScrapeTime.count(), .tv_nsec = 0}};
    timerfd_settime(timer_, 0, &time, nullptr);
    const bool kept = connection_ && connection_->alive();
    if (!kept && !Connect()) return std::nullopt;
    puller::QueryResult result = connection_->Execute(kQuery);
    // The connection may have been lost while nothing was asked.
    if (!result.ok() && result.sqlstate().empty() && kept && Connect()) {
      result = connection_->Execute(kQuery);
    }
    if (!result.ok()) {
      error_ = result.error();
      return std::nullopt;
    }
    return Read(result);
  }
  const std::string& error() const { return error_; }

 private:
  bool Connect() {
    connection_.reset();
    connection_ = puller::Connection::Open(dsn_, "postbox metrics", kLimits, timer_, &error_);
    return connection_ != nullptr;
  }

  static std::vector<metrics::MetricRow> Read(const puller::QueryResult& result) {
    std::vector<metrics::MetricRow> rows;
    for (int row = 0; row < result.rows(); ++row) {
      metrics::MetricRow& one = rows.emplace_back();
      one.name = result.text(row, 0);
      one.type = result.text(row, 1);
      one.help = result.text(row, 2);
      if (!result.null(row, 3)) {
        const auto labels = nlohmann::json::parse(result.text(row, 3));
        for (const auto& [name, value] : labels.items()) {
          one.labels[name] = value.is_string() ? value.get<std::string>() : value.dump();
        }
      }
      one.value = std::strtod(result.text(row, 4).c_str(), nullptr);
    }
    return rows;
  }

  const std::string dsn_;
  const int timer_;
  std::unique_ptr<puller::Connection> connection_;
  std::string error_;
};

std::string TextOf(std::vector<metrics::MetricRow> rows, bool failed) {
  rows.push_back({.name = kScrapeError,
                  .type = "gauge",
                  .help = "1 if the database could not be asked.",
                  .labels = {},
                  .value = failed ? 1.0 : 0.0});
  return metrics::MetricsText(metrics::FamiliesOf(rows));
}

metrics::HttpAnswer Answer(Scraper* scraper) {
  if (auto rows = scraper->Scrape()) {
    return {.body = TextOf(*std::move(rows), false), .type = metrics::kMetricsType};
  }
  return {.status = 503,
          .body = "# " + scraper->error() + "\n" + TextOf({}, true),
          .type = metrics::kMetricsType};
}

int Print(const MetricsOptions& options) {
  Scraper scraper(options.dsn);
  auto rows = scraper.Scrape();
  if (!rows) return Fail(scraper.error(), ConnectionRemedy(scraper.error()));
  std::fputs(metrics::MetricsText(metrics::FamiliesOf(*rows)).c_str(), stdout);
  return 0;
}

int Listen(const MetricsOptions& options) {
  const auto address = metrics::ParseListenAddress(options.listen);
  puller::Signals signals;  // before the thread of the server
  Scraper scraper(options.dsn);
  std::string error;
  const auto server = metrics::HttpServer::Start(
      *address, {{"/metrics", [&scraper] { return Answer(&scraper); }}}, &error);
  if (!server) return Fail(error, "choose another address with --listen");
  std::printf("postbox metrics listening on %s\n",
              metrics::FormatListenAddress(server->address()).c_str());
  std::fflush(stdout);
  while (signals.Wait(std::chrono::minutes(1)) != puller::Signals::kEnd) {
  }
  return 0;
}

}  // namespace

int RunMetrics(const MetricsOptions& options) {
  const int status = options.listen.empty() ? Print(options) : Listen(options);
  if (puller::Connection::CallsLeft()) {
    std::fflush(nullptr);
    std::_Exit(status);
  }
  return status;
}

}  // namespace postbox::cli
