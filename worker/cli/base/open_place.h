// The connection to Pub/Sub of a subcommand that needs the database only to learn where Pub/Sub is,
// and how a subcommand reports an error.
#ifndef POSTBOX_WORKER_CLI_BASE_OPEN_PLACE_H_
#define POSTBOX_WORKER_CLI_BASE_OPEN_PLACE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/cli/base/place_options.h"
#include "worker/cli/base/pubsub_admin.h"

namespace postbox::cli {

// What is wrong, and what to do about it, which may be empty.
struct Failure {
  std::string problem;
  std::string remedy;
};

struct OpenPlace {
  std::unique_ptr<PubSubAdmin> admin;
  std::string project;

  // The full name; empty after an error, which is printed.
  std::string Name(std::string_view collection, const std::string& name) const;
  // The same; the error is put into `problem`.
  std::string Name(std::string_view collection, const std::string& name,
                   std::string* problem) const;
};

// Nothing after an error, which is printed. Does not connect yet.
std::optional<OpenPlace> Connect(const PlaceOptions& options);
// The same; the error is put into `failure`.
std::optional<OpenPlace> Connect(const PlaceOptions& options, Failure* failure);

// Prints the error on standard error, and what to do. Returns 1, the exit status.
int Fail(const std::string& message, const std::string& remedy = "");
int Fail(const grpc::Status& status);
// What to do about an answer of Pub/Sub; may be empty.
const char* RemedyOf(grpc::StatusCode code);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_OPEN_PLACE_H_
