#include <cmath>

#include "worker/cli/console/reads.h"
#include "worker/cli/console/session_rights.h"
#include "worker/cli/console/sources.h"

namespace postbox::cli {
namespace {

// $1: the publication, $2: the lane after which the page begins, $3: the rows of a page. A lane of
// which no worker has begun has no row.
constexpr char kLanes[] = R"(
    WITH one AS (
      SELECT p.name, p.lanes, o.kind FROM postbox.publication p
      JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = $1),
    page AS (
      SELECT n.lane, l.lock_token, l.locked_at, l.floor, l.hwm, l.ahead IS NOT NULL AS ahead,
             coalesce(l.sent_again, 0) AS sent_again, l.snapshot IS NOT NULL AS begun,
             %s
      FROM (SELECT generate_series(0, o.lanes - 1) AS lane FROM one o WHERE o.kind = 'log' UNION
            SELECT l.slice FROM postbox.lane l WHERE l.publication = $1) n
      LEFT JOIN postbox.lane l ON l.publication = $1 AND l.slice = n.lane
      %s
      WHERE n.lane > coalesce($2::int, -1) ORDER BY n.lane LIMIT $3::int + 1),
    numbered AS (SELECT p.*, row_number() OVER (ORDER BY p.lane) AS n FROM page p)
    SELECT json_build_object(
      'rows', coalesce(json_agg(json_build_object(
        'publication', $1::text, 'lane', p.lane,
        'state', CASE WHEN p.lock_token IS NOT NULL THEN CASE WHEN p.lost THEN 'lost' ELSE 'held'
                      END WHEN p.begun THEN 'free' ELSE 'not begun' END,
        'pid', p.pid, 'worker', p.ordinal, 'worker_state', p.worker_state,
        'locked_at', p.locked_at, 'position', p.floor::text, 'unread_above', p.hwm::text,
        'ahead', p.ahead, 'sent_again', p.sent_again::text)
        ORDER BY p.lane) FILTER (WHERE p.n <= $3), '[]'),
      'next', CASE WHEN max(p.n) > $3 THEN (
        SELECT json_build_object('publication', $1::text, 'after', l.lane::text)
        FROM numbered l WHERE l.n = $3) END,
      'kind', (SELECT o.kind FROM one o), 'workers_visible', %s)::text
    FROM numbered p HAVING EXISTS (SELECT FROM one))";

JsonValue NumberOf(const std::optional<double>& value) {
  constexpr double kThousand = 1000;
  return value ? JsonValue(std::round(*value * kThousand) / kThousand) : JsonValue();
}

JsonValue LineOf(const MetricHistory::Line& line) {
  const bool others = line.object.empty();
  JsonValue values = JsonValue::array();
  for (const auto& value : line.values) values.push_back(NumberOf(value));
  return {{"name", line.series->name}, {"unit", line.series->unit},
          {"kind", line.series->kind}, {"object", others ? "others" : line.object},
          {"others", others},          {"values", std::move(values)}};
}

std::string Filled(std::string text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) text.replace(text.find("%s"), 2, part);
  return text;
}

}  // namespace

Answer ReadCharts(Session* session, const Sources& sources, const Arguments& arguments) {
  const std::string range = arguments.Text("range").value_or("3600");
  if (range != "900" && range != "3600" && range != "21600") {
    return Refuse(400, "range is 900, 3600 or 21600 seconds");
  }
  Answer refusal;
  const auto sees = Holds(session, POSTBOX_SEES_METRICS, &refusal);
  if (!sees) return refusal;
  if (!*sees) return RefuseRole("postbox.metrics", "the role needs pg_monitor");
  const auto charts = sources.charts.Read(MetricHistory::Now(), std::atoi(range.c_str()));
  JsonValue series = JsonValue::array();
  for (const auto& line : charts.lines) series.push_back(LineOf(line));
  return Give({{"from", charts.times.front()},
               {"step", charts.step},
               {"times", charts.times},
               {"series", std::move(series)},
               {"problem", charts.problem.empty() ? JsonValue() : JsonValue(charts.problem)}});
}

Answer ReadPublications(Session* session, const Sources& sources, const Arguments& arguments) {
  const Answer list = ReadList(session, ListQuery("publications"), arguments);
  if (list.status != 200) return list;
  JsonValue page = JsonValue::parse(list.body, nullptr, /*allow_exceptions=*/false);
  if (page.is_discarded()) return Refuse(500, "the database did not return JSON");
  const int64_t now = MetricHistory::Now();
  for (JsonValue& row : page["rows"]) {
    const bool reads = row["reads_metrics"] == JsonValue(true);
    row.erase("reads_metrics");
    row["rate"] = reads ? NumberOf(sources.charts.Rate(now, row["publication"])) : JsonValue();
  }
  return Give(page);
}

Answer ReadLanes(Session* session, const Arguments& arguments) {
  if (!arguments.Text("publication")) return Refuse(400, "publication is missing");
  Answer refusal;
  const auto sees = Holds(session, POSTBOX_SEES_WORKERS, &refusal);
  if (!sees) return refusal;
  // A view that the role may not read may not even stand in the statement.
  const std::string query =
      *sees ? Filled(kLanes,
                     {"w.pid, w.ordinal, w.state AS worker_state, w.lock_token IS NULL AS lost",
                      "LEFT JOIN postbox.workers w ON w.lock_token = l.lock_token", "true"})
            : Filled(kLanes, {"NULL::int AS pid, NULL::int AS ordinal, NULL::text AS worker_state, "
                              "false AS lost",
                              "", "false"});
  return Give(session->Read(query, {arguments.Parameter("publication"),
                                    arguments.Parameter("after"), Number(arguments.Limit())}));
}

}  // namespace postbox::cli
