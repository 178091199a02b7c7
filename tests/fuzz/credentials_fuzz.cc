// Files that GOOGLE_APPLICATION_CREDENTIALS names.
#include <unistd.h>

#include <fstream>

#include "proto/rules/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "worker/pubsub/auth/credentials_file.h"

using postbox::fuzz::Input;

namespace {

// A file of this process, which goes when the process ends.
const std::string& File() {
  static const auto& name =
      *new std::string("/tmp/postbox-fuzz-credentials-" + std::to_string(getpid()));
  static const int registered = std::atexit([] { unlink(name.c_str()); });
  (void)registered;
  return name;
}

}  // namespace

FUZZ(Input* input) {
  const std::string_view text = input->Rest();
  std::ofstream(File(), std::ios::binary | std::ios::trunc) << text;
  std::string error;
  const auto credentials = postbox::pubsub::ReadCredentialsFile(File(), &error);
  FUZZ_CHECK(credentials.has_value() == error.empty(), text);
  if (credentials) {
    // What HTTP/2 allows in a header.
    for (const char c : credentials->quota_project) FUZZ_CHECK(c >= ' ' && c < 0x7F, text);
    return;
  }
  FUZZ_CHECK(error.size() < 500 && postbox::pubsub::IsValidUtf8(error), error);
  for (const char c : error) FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20, error);
}
