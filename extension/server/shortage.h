// What is said when there are fewer slots for workers than the databases need.
//
// In the log the launcher writes a line when it begins, with the databases and the setting to
// raise, a few more while it lasts (proto/rules/repeat_limit.h), and one when it is over. A session
// that emits in a database without a worker gets a WARNING.
#ifndef POSTBOX_EXTENSION_SERVER_SHORTAGE_H_
#define POSTBOX_EXTENSION_SERVER_SHORTAGE_H_

#include "extension/base/postgres.h"
#include "extension/shared/shared_state.h"
#include "proto/rules/repeat_limit.h"

namespace postbox {

// Why a worker could not be started, as a sentence, and what to do.
std::string CauseOf(StartProblem problem);
const char* RemedyOf(StartProblem problem);

// For outbox_emit: says to the client, once a session, that this database has no worker for lack of
// slots. Costs a look at shared memory while there are enough.
void WarnUnserved();
inline void WarnIfUnserved() {
  SharedState* state = shared_state();
  if (state != nullptr && pg_atomic_read_u32(&state->unserved_count) != 0) WarnUnserved();
}

class Shortage {
 public:
  using Clock = std::chrono::steady_clock;

  // A round of the launcher found that these databases have no worker, or too few, for lack of
  // slots. `refused`: a start was refused in this round.
  void Note(const std::vector<std::string>& unserved, const std::vector<std::string>& short_of,
            StartProblem problem, bool refused);

 private:
  void Write(const RepeatLimit::Line& line) const;

  RepeatLimit limit_;
  bool told_ = false;
  StartProblem problem_ = StartProblem::kNone;
  // Of all rounds since the last line.
  std::set<std::string> unserved_;
  std::set<std::string> short_of_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_SHORTAGE_H_
