// `postbox provision`: makes the resources of Pub/Sub that a file describes, or writes such a file.
#ifndef POSTBOX_WORKER_CLI_PROVISION_PROVISION_H_
#define POSTBOX_WORKER_CLI_PROVISION_PROVISION_H_

#include <string>

#include "worker/cli/base/place_options.h"

namespace postbox::cli {

struct ProvisionOptions {
  PlaceOptions place;
  std::string file;            // "-": standard input, or standard output with from_database
  bool from_database = false;  // write a file instead of reading one
  bool dry_run = false;
  bool skip_unsupported = false;
  std::string print;  // gcloud or terraform; empty: apply
};

// Returns the exit status: 0, 1 after an error, which was printed, or kDiffers.
int RunProvision(const ProvisionOptions& options);

// A dry run has found differences.
inline constexpr int kDiffers = 3;

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_PROVISION_H_
