// Random tokens, and what compares and seals them.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_SECRET_H_
#define POSTBOX_WORKER_CLI_CONSOLE_SECRET_H_

#include <string>
#include <string_view>

namespace postbox::cli {

// 32 random bytes in hex. Throws std::runtime_error if the machine has no random bytes.
std::string RandomSecret();
// SHA-256 in hex.
std::string Digest(std::string_view text);
// HMAC-SHA-256 in hex.
std::string Seal(std::string_view key, std::string_view text);
// The time that it takes says nothing about the texts.
bool SameSecret(std::string_view one, std::string_view other);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_SECRET_H_
