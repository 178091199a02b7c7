#include "worker/cli/console/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <stdexcept>

namespace postbox::cli {
namespace {

using Bytes = std::array<unsigned char, 32>;

std::string InHex(const Bytes& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string RandomSecret() {
  Bytes bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("no random bytes");
  }
  return InHex(bytes);
}

std::string Digest(std::string_view text) {
  Bytes bytes{};
  if (EVP_Digest(text.data(), text.size(), bytes.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("no SHA-256");
  }
  return InHex(bytes);
}

std::string Seal(std::string_view key, std::string_view text) {
  Bytes bytes{};
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data(),
           nullptr) == nullptr) {
    throw std::runtime_error("no HMAC");
  }
  return InHex(bytes);
}

bool SameSecret(std::string_view one, std::string_view other) {
  const std::string left = Digest(one);
  const std::string right = Digest(other);
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace postbox::cli
