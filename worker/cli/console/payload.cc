#include <openssl/evp.h>

#include "proto/rules/utf8.h"
#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

std::string BytesOfHex(const std::string& hex) {
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  }
  return bytes;
}

std::string Base64(const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace

void DecodePayload(JsonValue* row) {
  const auto found = row->find("payload_hex");
  if (found == row->end()) return;
  const bool none = !found->is_string();
  std::string bytes = none ? "" : BytesOfHex(found->get<std::string>());
  row->erase(found);
  if (none) return;
  const bool truncated =
      (*row)["bytes"].is_number() && (*row)["bytes"].get<size_t>() > bytes.size();
  // The end may be in the middle of a character.
  const size_t valid = pubsub::FirstInvalidUtf8(bytes);
  const bool text = bytes.find('\0') == std::string::npos &&
                    (valid == bytes.size() || (truncated && bytes.size() - valid < 4));
  (*row)["truncated"] = truncated;
  if (!text) {
    (*row)["encoding"] = "base64";
    (*row)["payload"] = Base64(bytes);
    return;
  }
  bytes.resize(valid);
  (*row)["encoding"] = !truncated && JsonValue::accept(bytes) ? "json" : "text";
  (*row)["payload"] = std::move(bytes);
}

}  // namespace postbox::cli
