// What is said when no worker publishes: there are fewer slots for workers than the databases need,
// none is wanted, or those that run cannot.
//
// Of slots the launcher writes a line into the log when they are too few, with the databases and
// the setting to raise, a few more while it lasts (extension/rules/repeat_limit.h), and one when it
// is over. A session that emits gets a WARNING.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_SHORTAGE_H_
#define POSTBOX_EXTENSION_LIFECYCLE_SHORTAGE_H_

#include "extension/base/postgres.h"
#include "extension/rules/repeat_limit.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"

namespace postbox {

// Why a worker could not be started, as a sentence, and what to do.
std::string CauseOf(StartProblem problem);
const char* RemedyOf(StartProblem problem);

// For outbox_emit: says to the client, once a session, that no worker publishes the events of this
// database, or that its workers cannot, and why; unless the outbox has no publication. Costs a look
// at shared memory while nothing of the kind is known of any database.
void WarnUnserved(Oid outbox);
inline void WarnIfUnserved(Oid outbox) {
  SharedState* state = shared_state();
  if (state == nullptr || settings().publishers == 0 ||
      pg_atomic_read_u32(&state->unserved_count) != 0 ||
      pg_atomic_read_u32(&state->problem_count) != 0) {
    WarnUnserved(outbox);
  }
}

class Shortage {
 public:
  using Clock = std::chrono::steady_clock;

  // A round of the launcher found that these databases have no worker, or too few, for lack of
  // slots. `refused`: a start was refused in this round.
  void Note(const std::vector<std::string>& unserved, const std::vector<std::string>& short_of,
            StartProblem problem, bool refused);
  // As many publishers as the server wants for each database.
  void NotePublishers(int publishers);

 private:
  void Write(const RepeatLimit::Line& line) const;

  RepeatLimit limit_;
  bool told_ = false;
  bool told_of_none_ = false;
  StartProblem problem_ = StartProblem::kNone;
  // Of all rounds since the last line.
  std::set<std::string> unserved_;
  std::set<std::string> short_of_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_SHORTAGE_H_
