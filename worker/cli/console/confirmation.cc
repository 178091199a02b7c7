#include "worker/cli/console/confirmation.h"

#include <cstdint>
#include <cstdlib>

#include "worker/cli/console/secret.h"

namespace postbox::cli {
namespace {

int64_t SecondsOf(Confirmations::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

// <seal>.<seconds of the end>.<order>
std::string Confirmations::Issue(const std::string& order, Clock::time_point now) const {
  const std::string sealed = std::to_string(SecondsOf(now + kLife)) + "." + order;
  return Seal(key_, sealed) + "." + sealed;
}

std::optional<std::string> Confirmations::Open(const std::string& token,
                                               Clock::time_point now) const {
  const size_t first = token.find('.');
  if (first == std::string::npos) return std::nullopt;
  const std::string sealed = token.substr(first + 1);
  if (!SameSecret(token.substr(0, first), Seal(key_, sealed))) return std::nullopt;
  const size_t second = sealed.find('.');
  if (second == std::string::npos) return std::nullopt;
  if (std::strtoll(sealed.c_str(), nullptr, 10) <= SecondsOf(now)) return std::nullopt;
  return sealed.substr(second + 1);
}

}  // namespace postbox::cli
