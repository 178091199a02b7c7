// Structured log lines on stderr: one JSON object a line, or text with name=value at the end.
//
// Fields of the log (seed 004, 10.2) where they apply: event_id, event_type, aggregate_id,
// aggregate_type, version, message_id, trace_id, and outcome; always time, level and message.
// SPDLOG_LEVEL=debug shows a line a batch.
#ifndef POSTBOX_WORKER_PULLER_LOG_H_
#define POSTBOX_WORKER_PULLER_LOG_H_

#include <spdlog/common.h>

#include <nlohmann/json.hpp>
#include <string_view>

namespace postbox::puller {

struct Delivery;

using Fields = nlohmann::ordered_json;  // an object

// Once, before the first line. `json`: JSON lines, else text.
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

// The fields that tell which event it is about.
Fields EventFields(std::string_view subscription, const Delivery& delivery);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_LOG_H_
