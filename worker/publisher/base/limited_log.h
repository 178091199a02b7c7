// The lines of a background process in the server log that may come again and again, each with what
// it is about (extension/rules/repeat_limit.h). A line that was held back is counted; DETAIL says
// how often and for how long.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_LIMITED_LOG_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_LIMITED_LOG_H_

#include "extension/base/guard.h"
#include "extension/rules/repeat_limit.h"

namespace postbox::publisher {

// Texts are in the encoding of the database. Empty ones are left out.
struct LogText {
  int level = LOG;
  std::string message;
  std::string detail;
  std::string hint;
};

// Writes the line, or counts it. It happened `times` times at once.
void LogLimited(const std::string& subject, LogText text, int64 times = 1);
// Writes, or counts, that the process could not do something, "read the publications" for example.
void LogFailure(const char* what, const PostgresError& error);
// Writes what was counted and is due. To be called each time that the process comes round.
void WriteDueLines();
// When that is; the end of time if nothing was counted.
RepeatLimit::Clock::time_point NextDueLine();
// Writes all that was counted: the process leaves.
void WriteAllLines();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_LIMITED_LOG_H_
