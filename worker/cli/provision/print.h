// What a file asks for as commands of gcloud, or in the language of Terraform: everything that it
// describes, not the differences to a server.
#ifndef POSTBOX_WORKER_CLI_PROVISION_PRINT_H_
#define POSTBOX_WORKER_CLI_PROVISION_PRINT_H_

#include <string>

#include "google/protobuf/duration.pb.h"
#include "worker/cli/provision/desired.h"

namespace postbox::cli {

// One word of a shell, in single quotes if it needs them.
std::string ShellQuoted(const std::string& text);
// A string of HCL: no template is evaluated in it.
std::string HclQuoted(const std::string& text);

// A duration in whole seconds, as both write it: "600s".
inline std::string Seconds(const google::protobuf::Duration& duration) {
  return std::to_string(duration.seconds()) + "s";
}

// A script of a POSIX shell that makes what is not there yet.
std::string PrintGcloud(const Desired& desired);
// As `terraform fmt` would write it.
std::string PrintTerraform(const Desired& desired);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_PRINT_H_
