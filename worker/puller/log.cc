#include "worker/puller/log.h"

#include <spdlog/cfg/env.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "extension/rules/log_fields.h"
#include "extension/rules/repeat_limit.h"
#include "proto/rules/attributes.h"
#include "proto/rules/utf8.h"
#include "worker/base/line_queue.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/received_event.h"

namespace postbox::puller {
namespace {

bool json_lines = false;

std::string Dump(const Fields& value) {
  return value.dump(-1, ' ', false, Fields::error_handler_t::replace);
}

// A copy with long texts cut.
Fields CutFields(const Fields& fields) {
  Fields cut = fields;
  for (auto& value : cut) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > kMaxLogBytes) value = Cut(text, kMaxLogBytes);
  }
  return cut;
}

// A line that was held back.
struct Held {
  std::string message;
  Fields fields;
};
using Limit = RepeatLimitOf<Held>;
std::mutex repeated_mutex;
Limit& RepeatedLines() {
  static auto& lines = *new Limit(kSameLines);
  return lines;
}

void Write(const Limit::Line& line) {
  Fields fields = line.text.fields;
  if (line.repeated > 0) {
    fields["repeated"] = line.repeated;
    fields["over_seconds"] = line.over.count();
  }
  LogLine(spdlog::level::warn, line.text.message, fields);
}

// A string without blanks, quotes and the like is written without quotes. What is not UTF-8 in it
// is replaced, as in JSON.
std::string Plain(const Fields& value) {
  if (!value.is_string()) return Dump(value);
  const auto& text = value.get_ref<const std::string&>();
  return pubsub::IsValidUtf8(text) ? FieldValue(text) : Dump(value);
}

std::string LineOf(spdlog::level::level_enum level, std::string_view message,
                   const Fields& fields) {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto level_name = spdlog::level::to_string_view(level);
  const std::string_view name(level_name.data(), level_name.size());
  if (json_lines) {
    Fields object = {{"time", pubsub::FormatRfc3339(now)}, {"level", name}, {"message", message}};
    object.update(CutFields(fields));
    return Dump(object);
  }
  std::string line = pubsub::FormatRfc3339(now);
  line.append(" ").append(name).append(" ").append(message);
  const Fields cut = CutFields(fields);
  for (const auto& [key, value] : cut.items()) {
    line.append(" ").append(key).append("=").append(Plain(value));
  }
  return line;
}

// Standard error through the queue of the process. Lines come with all that they are to have.
class QueueSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    StandardError().Push(std::move(line));
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}
};

}  // namespace

void InitLog(bool json) {
  json_lines = json;
  StandardError().SayDropped([](uint64_t count) {
    return LineOf(spdlog::level::warn, "log lines were dropped, since nothing read them",
                  {{"lines", count}}) +
           "\n";
  });
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("postbox", std::make_shared<QueueSink>()));
  spdlog::cfg::load_env_levels();
}

void FinishLog() { StandardError().Finish(); }

std::string Cut(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t length = max_bytes;
  // A byte 10xxxxxx continues a character.
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return std::string(text.substr(0, length)) + "...";
}

void LogRepeated(std::string_view message, const Fields& fields) {
  std::string name(message);
  for (const char* part : {"subscription", "sqlstate"}) {
    name += '\n';
    if (auto it = fields.find(part); it != fields.end()) name += Dump(*it);
  }
  const std::lock_guard<std::mutex> lock(repeated_mutex);
  const auto line = RepeatedLines().Note(name, Held{std::string(message), CutFields(fields)},
                                         Limit::Clock::now());
  if (line.has_value()) Write(*line);
}

void LogSums(bool all) {
  const std::lock_guard<std::mutex> lock(repeated_mutex);
  const auto now = Limit::Clock::now();
  for (const Limit::Line& line : all ? RepeatedLines().TakeAll(now) : RepeatedLines().Due(now)) {
    Write(line);
  }
}

void LogLine(spdlog::level::level_enum level, std::string_view message, const Fields& fields) {
  if (!spdlog::should_log(level)) return;
  spdlog::log(level, "{}", LineOf(level, message, fields));
}

Fields EventFields(std::string_view subscription, const Delivery& delivery) {
  Fields fields = {{"subscription", subscription}};
  auto add = [&fields](const char* name, const std::optional<std::string_view>& value) {
    if (value) fields[name] = *value;
  };
  add("event_id", delivery.event.event_id);
  add("event_type", delivery.event.event_type);
  add("aggregate_id", delivery.event.aggregate_id);
  add("aggregate_type", delivery.event.aggregate_type);
  if (delivery.event.version) fields["version"] = *delivery.event.version;
  fields["message_id"] = delivery.message.message_id;
  const std::string_view trace = pubsub::TraceIdAmong(delivery.message.attributes);
  if (!trace.empty()) fields["trace_id"] = trace;
  return fields;
}

}  // namespace postbox::puller
