// Writes a file for `postbox provision` from the publications and subscriptions of a database.
#ifndef POSTBOX_WORKER_CLI_PROVISION_DATABASE_FILE_H_
#define POSTBOX_WORKER_CLI_PROVISION_DATABASE_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/cli/base/open_place.h"

namespace postbox::cli {

struct DatabaseSubscription {
  std::string subscription;  // an id or a full name, as the database has it
  int64_t max_attempts = 0;
  int64_t inbox_retention = 0;    // seconds; 0 if unknown
  std::string dead_letter_topic;  // to which the puller publishes; may be empty
};

// What is read of a database. `topics`: of publications, as the database has them.
struct DatabaseResources {
  std::string project;
  std::vector<std::string> topics;
  std::vector<DatabaseSubscription> subscriptions;
};

// The YAML text. What it cannot know stands as an empty text, which is refused when the file is
// read, and is named in `warnings`.
std::string DatabaseFileText(const DatabaseResources& resources,
                             std::vector<std::string>* warnings);

// Nothing after an error.
std::optional<DatabaseResources> ReadDatabase(const PlaceOptions& place, Failure* failure);

// `file`: a name that nothing has yet, or "-" or "" for standard output. Returns the exit status.
int WriteDatabaseFile(const PlaceOptions& place, const std::string& file);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_DATABASE_FILE_H_
