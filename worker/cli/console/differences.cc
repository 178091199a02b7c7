#include "worker/cli/provision/differences.h"

#include <ctime>

#include "worker/cli/console/session_rights.h"
#include "worker/cli/console/sources.h"

namespace postbox::cli {
namespace {

// Of all calls of Pub/Sub together.
constexpr std::chrono::seconds kLongestRead{20};
constexpr size_t kMostDifferences = 1000;

std::string TimeText(std::time_t time) {
  tm parts{};
  char text[sizeof("2026-01-31T12:00:00Z")];
  gmtime_r(&time, &parts);
  std::strftime(text, sizeof(text), "%FT%TZ", &parts);
  return text;
}

JsonValue TextOrNull(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

std::string MakeAnswer(const PlaceOptions& place, const std::string& file) {
  const Differences found = FindDifferences(place, file, kLongestRead);
  JsonValue rows = JsonValue::array();
  for (const Difference& one : found.rows) {
    if (rows.size() == kMostDifferences) break;
    rows.push_back({{"kind", one.kind},
                    {"resource", TextOrNull(one.resource)},
                    {"name", one.name},
                    {"difference", one.text},
                    {"remedy", TextOrNull(one.remedy)}});
  }
  return Dump({{"configured", true},
               {"source", file.empty() ? "database" : "file"},
               {"read_at", TimeText(std::time(nullptr))},
               {"rows", std::move(rows)},
               {"more", found.rows.size() > kMostDifferences},
               {"problem", TextOrNull(found.failure.problem)},
               {"remedy", TextOrNull(found.failure.remedy)}});
}

}  // namespace

Answer ReadDifferences(Session* session, Sources* sources) {
  Answer refusal;
  const auto sees = Holds(session, POSTBOX_SEES_PROVISION, &refusal);
  if (!sees) return refusal;
  if (!*sees) {
    return RefuseRole("the resources of Pub/Sub",
                      "the role needs to be a member of postbox_operator or pg_monitor");
  }
  const auto& place = sources->broker.options();
  if (!place) {
    return Give({{"configured", false},
                 {"rows", JsonValue::array()},
                 {"problem", BrokerPlace::kNotConfigured}});
  }
  const auto answer = sources->differences.Get(
      AnswerCache::Clock::now(), [&] { return MakeAnswer(*place, sources->provision_file); });
  if (!answer) return Refuse(503, "Pub/Sub is being asked: try again in a few seconds");
  return {200, *answer};
}

}  // namespace postbox::cli
