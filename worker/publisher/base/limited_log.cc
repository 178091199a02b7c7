#include "worker/publisher/base/limited_log.h"

#include "extension/shared/time_scale.h"

namespace postbox::publisher {
namespace {

using LineLimit = RepeatLimitOf<LogText>;

LineLimit& Lines() {
  // Never destroyed: the process ends in the server's exit.
  static auto* lines = new LineLimit(/*burst=*/1, Scaled(LineLimit::kFirstPause));
  return *lines;
}

void Write(const LineLimit::Line& line) {
  const LogText& text = line.text;
  std::string detail = text.detail;
  if (line.repeated > 0) {
    if (!detail.empty()) detail += ' ';
    detail += "This was " + line.Count() + ".";
  }
  Pg([&text, &detail] {
    ereport(text.level, (errmsg("%s", text.message.c_str()),
                         detail.empty() ? 0 : errdetail_internal("%s", detail.c_str()),
                         text.hint.empty() ? 0 : errhint("%s", text.hint.c_str())));
  });
}

}  // namespace

void LogLimited(const std::string& subject, LogText text, int64 times) {
  const auto line = Lines().Note(subject, std::move(text), LineLimit::Clock::now(), times);
  if (line.has_value()) Write(*line);
}

void LogFailure(const char* what, const PostgresError& error) {
  const std::string message = std::string("could not ") + what + ": " + error.message;
  LogLimited(SubjectOf(message), {WARNING, message, error.detail, error.hint});
}

void WriteDueLines() {
  for (const LineLimit::Line& line : Lines().Due(LineLimit::Clock::now())) Write(line);
}

RepeatLimit::Clock::time_point NextDueLine() { return Lines().DueAt(); }

void WriteAllLines() {
  for (const LineLimit::Line& line : Lines().TakeAll(LineLimit::Clock::now())) Write(line);
}

}  // namespace postbox::publisher
