// Moves a Pub/Sub subscription to a time or a snapshot: `postbox seek` and the console.
//
// What the API of Pub/Sub says of a time: messages published before it count as acknowledged, later
// ones as not acknowledged. That includes a time in the future, before which nothing is delivered
// any more, and a time before the oldest message that is kept, which delivers all that are. A
// snapshot restores what was acknowledged when it was created.
#ifndef POSTBOX_WORKER_CLI_BASE_SEEK_H_
#define POSTBOX_WORKER_CLI_BASE_SEEK_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "worker/cli/base/open_place.h"

namespace postbox::cli {

struct SeekTarget {
  std::string time;      // RFC 3339
  std::string snapshot;  // or this: an id or a full name
};

// In Unix time, in seconds; nothing if the text is no time.
std::optional<int64_t> SeekTime(const std::string& text);
inline constexpr char kSeekTimeRemedy[] =
    "write it like 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00";

struct SeekFailure : Failure {
  bool unanswered = false;  // it may have been done all the same
};

// `subscription`: an id or a full name. Nothing if it was done.
std::optional<SeekFailure> Seek(const OpenPlace& broker, const std::string& subscription,
                                const SeekTarget& target);

// For how long the acknowledged messages of a subscription can come again; 0: they cannot.
std::optional<Failure> ReadRetention(const OpenPlace& broker, const std::string& subscription,
                                     std::chrono::seconds* retention);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_SEEK_H_
