#include "worker/puller/log.h"

#include <spdlog/cfg/env.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/rules/attributes.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/received_event.h"

namespace postbox::puller {
namespace {

bool json_lines = false;

std::string Dump(const Fields& value) {
  return value.dump(-1, ' ', false, Fields::error_handler_t::replace);
}

// A string without blanks, quotes and the like is written without quotes.
std::string Plain(const Fields& value) {
  if (!value.is_string()) return Dump(value);
  const auto& text = value.get_ref<const std::string&>();
  bool bare = !text.empty() && text.find_first_of(" \"=\n\r\t\\") == std::string::npos;
  return bare ? text : Dump(value);
}

}  // namespace

void InitLog(bool json) {
  json_lines = json;
  auto logger = std::make_shared<spdlog::logger>("postbox",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%v");
  spdlog::set_default_logger(std::move(logger));
  spdlog::cfg::load_env_levels();
}

void LogLine(spdlog::level::level_enum level, std::string_view message, const Fields& fields) {
  if (!spdlog::should_log(level)) return;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto level_name = spdlog::level::to_string_view(level);
  const std::string_view name(level_name.data(), level_name.size());
  std::string line;
  if (json_lines) {
    Fields object = {{"time", pubsub::FormatRfc3339(now)}, {"level", name}, {"message", message}};
    object.update(fields);
    line = Dump(object);
  } else {
    line = pubsub::FormatRfc3339(now);
    line.append(" ").append(name).append(" ").append(message);
    for (const auto& [key, value] : fields.items()) {
      line.append(" ").append(key).append("=").append(Plain(value));
    }
  }
  spdlog::log(level, "{}", line);
}

Fields EventFields(std::string_view subscription, const Delivery& delivery) {
  Fields fields = {{"subscription", subscription}};
  auto add = [&fields](const char* name, const std::optional<std::string>& value) {
    if (value) fields[name] = *value;
  };
  add("event_id", delivery.event.event_id);
  add("event_type", delivery.event.event_type);
  add("aggregate_id", delivery.event.aggregate_id);
  add("aggregate_type", delivery.event.aggregate_type);
  if (delivery.event.version) fields["version"] = *delivery.event.version;
  fields["message_id"] = delivery.message.message_id;
  if (auto trace = TraceId(delivery.message); !trace.empty()) fields["trace_id"] = trace;
  return fields;
}

}  // namespace postbox::puller
