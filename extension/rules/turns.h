// Who gives up its slot when there are fewer slots for workers than databases that need one.
//
// A database that waits gets the slot of, in this order:
//   1. a worker that is not the only one of its database;
//   2. the worker that has had nothing to do for longest, if that is kIdle at least;
//   3. the worker that has its slot for longest, if that is kTurn at least.
// So an idle database gives way at once, and a busy one after its turn. With `n` databases that are
// busy and `m` slots, each waits for about (n / m - 1) turns. Where no database waits, none gives
// up anything: then this is not asked.
#ifndef POSTBOX_EXTENSION_RULES_TURNS_H_
#define POSTBOX_EXTENSION_RULES_TURNS_H_

#include <chrono>
#include <cstddef>
#include <span>

namespace postbox {

// A worker without work for so long is idle.
inline constexpr std::chrono::milliseconds kIdle(1000);
// A worker with work keeps its slot for so long, if others wait.
inline constexpr std::chrono::milliseconds kTurn(10'000);
// A database that may have work gets a slot after so long, to look: events
// may come without a message (plain INSERT), or be due again.
inline constexpr std::chrono::milliseconds kLookInterval(30'000);
// A lack of slots that is over within this time makes no worker give up its slot. Parallel queries
// take slots for moments.
inline constexpr std::chrono::milliseconds kSlotPatience(1000);

// A worker that runs.
struct Turn {
  bool spare = false;                 // its database has another one
  bool leaving = false;               // it was asked already
  std::chrono::milliseconds held{0};  // for how long it has its slot
  std::chrono::milliseconds idle{0};  // for how long it has had nothing to do
};

inline constexpr std::size_t kNobodyYields = static_cast<std::size_t>(-1);

// The place of the worker that gives up its slot, or kNobodyYields: none has to now.
constexpr std::size_t WhoYields(std::span<const Turn> turns) {
  const auto rank = [](const Turn& turn) {
    if (turn.leaving) return 0;
    if (turn.spare) return 3;
    if (turn.idle >= kIdle) return 2;
    return turn.held >= kTurn ? 1 : 0;
  };
  std::size_t found = kNobodyYields;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const int mine = rank(turns[i]);
    if (mine == 0) continue;
    const int best = found == kNobodyYields ? 0 : rank(turns[found]);
    const bool longer = best == mine && (mine == 2 ? turns[i].idle > turns[found].idle
                                                   : turns[i].held > turns[found].held);
    if (mine > best || longer) found = i;
  }
  return found;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_TURNS_H_
