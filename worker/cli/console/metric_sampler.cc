#include "worker/cli/console/metric_sampler.h"

#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "worker/puller/log.h"

namespace postbox::cli {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

constexpr puller::TransactionLimits kSampling{.read_only = true,
                                              .statement_timeout = seconds(5),
                                              .lock_timeout = seconds(1),
                                              .answer_time = seconds(1)};

std::string Quoted(const char* text) {
  return text == nullptr ? "NULL" : "'" + std::string(text) + "'";
}

// Columns: the number of the series, the object, the part, the value.
std::string Query() {
  std::string wanted;
  std::string names;  // samples of other names need not be made
  size_t number = 0;
  for (const ChartSeries& one : ChartSeriesTable()) {
    if (one.metric != nullptr) {
      names += (names.empty() ? "" : ",") + std::string(one.metric);
      wanted += wanted.empty() ? "VALUES " : ", ";
      wanted += "(" + std::to_string(number) + ", " + Quoted(one.metric) + ", " + Quoted(one.kind) +
                ", " + Quoted(one.outcomes) + "::text[])";
    }
    ++number;
  }
  const std::string received = std::to_string(number - 2);
  const std::string waiting = std::to_string(number - 1);
  return "SELECT w.series, m.labels ->> w.kind, (m.labels - w.kind)::text, m.value FROM (" +
         wanted +
         ") w(series, name, kind, outcomes) JOIN postbox.metrics m ON m.name = w.name AND "
         "(w.outcomes IS NULL OR m.labels ->> 'outcome' = ANY (w.outcomes)) WHERE m.value IS NOT "
         "NULL AND m.name = ANY ('{" +
         names + "}') UNION ALL SELECT s.series, t.subscription, '', CASE s.series WHEN " +
         received +
         " THEN sum(t.events_per_second) ELSE coalesce(extract(epoch FROM clock_timestamp() - "
         "min(t.oldest_waiting)), 0)::float8 END FROM postbox.subscription_status t, (VALUES (" +
         received + "), (" + waiting +
         ")) s(series) WHERE t.last_seen > clock_timestamp() - interval '1 minute' GROUP BY "
         "s.series, t.subscription";
}

std::string ProblemOf(const puller::QueryResult& result) {
  if (result.sqlstate() == "42501") {
    return "the role of --dsn may not read postbox.metrics (" + result.error() +
           "): run GRANT pg_monitor to it, or name another role in --dsn";
  }
  if (result.sqlstate() == "42P01" || result.sqlstate() == "3F000") {
    return "the database has no postbox.metrics: run CREATE EXTENSION postbox, or ALTER EXTENSION "
           "postbox UPDATE";
  }
  return "postbox.metrics cannot be read: " + result.error();
}

}  // namespace

MetricSampler::MetricSampler(std::string dsn, int interrupt, MetricHistory* history)
    : dsn_(std::move(dsn)), interrupt_(interrupt), history_(history), thread_([this] { Run(); }) {}

void MetricSampler::Join() {
  if (thread_.joinable()) thread_.join();
}

void MetricSampler::Run() {
  do {
    Sample();
  } while (WaitForNext());
}

// At the begin of the next step, so that two samples are not in one.
bool MetricSampler::WaitForNext() const {
  const auto now = system_clock::now().time_since_epoch();
  constexpr seconds kStep{MetricHistory::kStep};
  const auto next = (std::chrono::floor<seconds>(now) / kStep + 1) * kStep;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  pollfd end{interrupt_, POLLIN, 0};
  return poll(&end, 1, static_cast<int>(left.count())) <= 0;
}

bool MetricSampler::Connect() {
  history_->Forget();
  std::string error;
  connection_ =
      puller::Connection::Open(dsn_, "postbox console charts", kSampling, interrupt_, &error);
  if (connection_) return true;
  Fail("the console cannot connect as the role of --dsn: " + error +
       ": charts need such a role, a member of pg_monitor");
  return false;
}

void MetricSampler::Fail(const std::string& problem) {
  history_->Fail(problem);
  puller::LogRepeated("no sample for the charts", {{"error", problem}});
}

void MetricSampler::Sample() {
  if (!(connection_ && connection_->alive()) && !Connect()) return;
  static const auto& query = *new std::string(Query());
  puller::QueryResult result = connection_->Execute(query.c_str());
  // The connection may have been lost while nothing was asked.
  if (!result.ok() && result.sqlstate().empty()) {
    if (!Connect()) return;
    result = connection_->Execute(query.c_str());
  }
  if (!result.ok()) return Fail(ProblemOf(result));
  std::vector<MetricValue> values;
  for (int row = 0; row < result.rows(); ++row) {
    if (result.null(row, 1) || result.null(row, 3)) continue;
    values.push_back({.series = static_cast<size_t>(result.integer(row, 0)),
                      .object = result.text(row, 1),
                      .part = result.text(row, 2),
                      .value = std::strtod(result.text(row, 3).c_str(), nullptr)});
  }
  history_->Add(MetricHistory::Now(), values);
}

}  // namespace postbox::cli
