// What `postbox provision --dry-run` would change, as rows for a page: the differences between a
// file, or the publications and subscriptions of a database, and what Pub/Sub has.
#ifndef POSTBOX_WORKER_CLI_PROVISION_DIFFERENCES_H_
#define POSTBOX_WORKER_CLI_PROVISION_DIFFERENCES_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/cli/base/open_place.h"

namespace postbox::cli {

struct Difference {
  const char* kind;  // create, update, refused, unsupported, unknown
  std::string resource;
  std::string name;
  std::string text;
  std::string remedy;
};

struct Differences {
  Failure failure;  // without a problem, the rows are all there are
  std::vector<Difference> rows;
};

// `file`: empty for what the database of `place` needs. All calls of Pub/Sub are over after `time`.
Differences FindDifferences(const PlaceOptions& place, const std::string& file,
                            std::chrono::seconds time);

// The text of a file, or of standard input for "-"; nothing after an error.
std::optional<std::string> ReadProvisionFile(const std::string& name, Failure* failure);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_DIFFERENCES_H_
