#include "worker/pubsub/auth/jwt.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "worker/pubsub/release_with.h"

namespace postbox::pubsub {

namespace {

using nlohmann::json;

using Bio = std::unique_ptr<BIO, ReleaseWith<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, ReleaseWith<EVP_PKEY_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, ReleaseWith<EVP_MD_CTX_free>>;

// A key that is encrypted is none: OpenSSL would ask for the password on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*user*/) { return -1; }

Key ReadKey(const std::string& pem) {
  const Bio text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(text == nullptr ? nullptr
                          : PEM_read_bio_PrivateKey(text.get(), nullptr, &NoPassword, nullptr));
  return key != nullptr && EVP_PKEY_base_id(key.get()) == EVP_PKEY_RSA ? std::move(key) : nullptr;
}

std::optional<std::string> Sign(EVP_PKEY* key, const std::string& text) {
  const Digest digest(EVP_MD_CTX_new());
  std::vector<unsigned char> signature(static_cast<std::size_t>(EVP_PKEY_size(key)));
  std::size_t size = signature.size();
  if (digest == nullptr ||
      EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, key) != 1 ||
      EVP_DigestSign(digest.get(), signature.data(), &size,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1) {
    return std::nullopt;
  }
  return std::string(reinterpret_cast<const char*>(signature.data()), size);
}

// What is not valid UTF-8 in it is replaced.
std::string Encode(const json& object) {
  return absl::WebSafeBase64Escape(object.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

std::optional<std::string> SignJwt(const ServiceAccountKey& account, const JwtUse& use,
                                   std::chrono::system_clock::time_point now,
                                   std::chrono::seconds life, std::string* error) {
  const Key key = ReadKey(account.private_key);
  const auto issued = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch());
  json header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (!account.key_id.empty()) header["kid"] = account.key_id;
  json claims = {{"iss", account.email},
                 {"sub", account.email},
                 {"iat", issued.count()},
                 {"exp", (issued + life).count()}};
  if (use.scope.empty()) {
    claims["aud"] = use.audience;
  } else {
    claims["scope"] = use.scope;
  }
  const std::string text = Encode(header) + "." + Encode(claims);
  const std::optional<std::string> signature =
      key == nullptr ? std::nullopt : Sign(key.get(), text);
  ERR_clear_error();  // of this thread, on which TLS comes next
  if (!signature) {
    *error = "the private_key is not an RSA key, or cannot be used";
    return std::nullopt;
  }
  return text + "." + absl::WebSafeBase64Escape(*signature);
}

std::string ClaimOf(const std::string& token, const char* name) {
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  std::string text;
  if (parts.size() != 3 || !absl::WebSafeBase64Unescape(parts[1], &text)) return "";
  const json claims = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!claims.is_object() || !claims.contains(name) || !claims[name].is_string()) return "";
  return claims[name].get<std::string>();
}

}  // namespace postbox::pubsub
