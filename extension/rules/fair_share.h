// How several users share a number of places, or of bytes, so that none of them has to wait for
// what the others hold.
//
// A user that is the only one to hold places gets everything. Otherwise it takes more as long as it
// holds less than twice what is free. So two of them get two fifths each, there is always something
// left for a later user, and it does not matter how long the others hold theirs. If less is left
// than a user's guaranteed part, it gets that part nevertheless. Together they hold at most
// 1 + 1/kGuaranteedPart times the places.
#ifndef POSTBOX_EXTENSION_RULES_FAIR_SHARE_H_
#define POSTBOX_EXTENSION_RULES_FAIR_SHARE_H_

#include <algorithm>
#include <cstddef>

namespace postbox::pubsub {

// All guaranteed parts together are this part of the places.
inline constexpr std::size_t kGuaranteedPart = 4;

constexpr std::size_t Guaranteed(std::size_t places, std::size_t users) {
  return std::max(places / kGuaranteedPart / std::max(users, std::size_t{1}), std::size_t{1});
}

// How many more a user may take who holds `held`, when all users together hold `all` of `places`.
constexpr std::size_t MayTake(std::size_t places, std::size_t users, std::size_t all,
                              std::size_t held) {
  const std::size_t free = all < places ? places - all : 0;
  if (users <= 1 || all == held) return free;
  const std::size_t fair = 2 * free > held ? (2 * free - held + 2) / 3 : 0;
  const std::size_t guaranteed = Guaranteed(places, users);
  return std::max(fair, held < guaranteed ? guaranteed - held : std::size_t{0});
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_EXTENSION_RULES_FAIR_SHARE_H_
