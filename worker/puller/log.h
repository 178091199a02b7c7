// Structured log lines on standard error: a JSON object per line, or text followed by name=value
// pairs.
//
// Every line has time, level and message. A line about an event also has those of event_id,
// event_type, aggregate_id, aggregate_type, version, message_id, trace_id and outcome that apply.
// With SPDLOG_LEVEL=debug there is a line for each batch and one for each event of it.
//
// A text in a line is cut to kMaxLogBytes. Postgres repeats values in its messages, and a value may
// have 10 MB.
//
// A failure that goes on is summed, not repeated: of the lines that LogRepeated is given for one
// message, subscription and SQLSTATE, kSameLines are written. The next ones are counted, and
// written as one line with their number when a pause is over (extension/rules/repeat_limit.h).
//
// Standard error that nothing reads holds up no thread: lines wait in a queue, and are dropped and
// counted when it is full (worker/base/line_queue.h).
#ifndef POSTBOX_WORKER_PULLER_LOG_H_
#define POSTBOX_WORKER_PULLER_LOG_H_

#include <spdlog/common.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace postbox::puller {

struct Delivery;

using Fields = nlohmann::ordered_json;  // an object

inline constexpr size_t kMaxLogBytes = 1024;
inline constexpr int kSameLines = 10;

// The text, or its beginning and "..." if it is longer than `max_bytes`. No character is divided.
std::string Cut(std::string_view text, size_t max_bytes);

// Called once, before the first line. Lines are JSON objects if `json` is true, else text.
void InitLog(bool json);
// Called last of all. Waits a second for a reader of what is not written yet.
void FinishLog();

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

// A warning that may come for many events, see above. Any thread.
void LogRepeated(std::string_view message, const Fields& fields);
// Writes the sums of pauses that are over, or all of them. Called now and then, and at the end.
void LogSums(bool all = false);

// The fields that identify an event.
Fields EventFields(std::string_view subscription, const Delivery& delivery);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_LOG_H_
