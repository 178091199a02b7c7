// Structured log lines on standard error: a JSON object per line, or text followed by name=value
// pairs.
//
// Every line has time, level and message. A line about an event also has those of event_id,
// event_type, aggregate_id, aggregate_type, version, message_id, trace_id and outcome that apply.
// With SPDLOG_LEVEL=debug there is a line for each batch and one for each event of it.
#ifndef POSTBOX_WORKER_PULLER_LOG_H_
#define POSTBOX_WORKER_PULLER_LOG_H_

#include <spdlog/common.h>

#include <nlohmann/json.hpp>
#include <string_view>

namespace postbox::puller {

struct Delivery;

using Fields = nlohmann::ordered_json;  // an object

// Called once, before the first line. Lines are JSON objects if `json` is true, else text.
void InitLog(bool json);

void LogLine(spdlog::level::level_enum level, std::string_view message, const Fields& fields);
inline void LogDebug(std::string_view message, const Fields& fields = Fields::object()) {
  LogLine(spdlog::level::debug, message, fields);
}
inline void LogInfo(std::string_view message, const Fields& fields = Fields::object()) {
  LogLine(spdlog::level::info, message, fields);
}
inline void LogWarn(std::string_view message, const Fields& fields = Fields::object()) {
  LogLine(spdlog::level::warn, message, fields);
}
inline void LogError(std::string_view message, const Fields& fields = Fields::object()) {
  LogLine(spdlog::level::err, message, fields);
}

// The fields that identify an event.
Fields EventFields(std::string_view subscription, const Delivery& delivery);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_LOG_H_
