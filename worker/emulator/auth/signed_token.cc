#include "worker/emulator/auth/signed_token.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace postbox::emulator {
namespace {

using nlohmann::json;

constexpr absl::Duration kSkew = absl::Minutes(5);
constexpr absl::Duration kLongestLife = absl::Hours(1);
constexpr absl::string_view kScopes[] = {"https://www.googleapis.com/auth/cloud-platform",
                                         "https://www.googleapis.com/auth/pubsub"};

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;

std::optional<json> DecodeObject(absl::string_view part) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(part, &text)) return std::nullopt;
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

std::string StringOf(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<absl::Time> TimeOf(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return absl::FromUnixSeconds(found->get<int64_t>());
}

Key ReadKey(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto open = [&] {
    return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  if (Key key(PEM_read_bio_PUBKEY(open().get(), nullptr, nullptr, nullptr)); key != nullptr) {
    return key;
  }
  const Certificate certificate(PEM_read_bio_X509(open().get(), nullptr, nullptr, nullptr));
  return certificate == nullptr ? nullptr : Key(X509_get_pubkey(certificate.get()));
}

bool HasSigned(EVP_PKEY* key, absl::string_view text, absl::string_view signature) {
  const Digest digest(EVP_MD_CTX_new());
  const auto bytes = [](absl::string_view of) {
    return reinterpret_cast<const unsigned char*>(of.data());
  };
  return EVP_PKEY_base_id(key) == EVP_PKEY_RSA && digest != nullptr &&
         EVP_DigestVerifyInit(digest.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(digest.get(), bytes(signature), signature.size(), bytes(text),
                          text.size()) == 1;
}

absl::Status CheckTimes(const json& claims, absl::Time now) {
  const std::optional<absl::Time> issued = TimeOf(claims, "iat");
  const std::optional<absl::Time> expires = TimeOf(claims, "exp");
  if (!issued || !expires) return InvalidToken("the token has no iat or no exp");
  const auto at = [](absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); };
  if (*expires + kSkew < now) {
    return InvalidToken(
        absl::StrCat("the token has expired at ", at(*expires), ", and it is ", at(now)));
  }
  if (*issued - kSkew > now) {
    return InvalidToken(absl::StrCat("the token is issued in the future, at ", at(*issued),
                                     ", and it is ", at(now), ": compare the clocks"));
  }
  if (*expires - *issued > kLongestLife)
    return InvalidToken("the token lives for more than an hour");
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& issuer, const std::vector<std::string>& files,
                      absl::string_view signed_text, absl::string_view signature) {
  bool known = false;
  for (const std::string& file : files) {
    const Key key = ReadKey(file);
    known = known || key != nullptr;
    if (key != nullptr && HasSigned(key.get(), signed_text, signature)) return absl::OkStatus();
  }
  return InvalidToken(known ? absl::StrCat("none of the keys of ", issuer, " has signed the token")
                            : absl::StrCat("\"", issuer, "\" has no key here"));
}

}  // namespace

// The sentence is that of Google's services, what follows is ours.
absl::Status InvalidToken(absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("Request had invalid authentication credentials: ", why));
}

absl::StatusOr<TokenClaims> CheckSignedToken(
    absl::string_view token,
    const std::function<std::vector<std::string>(const std::string& issuer)>& keys_of,
    absl::Time now) {
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  std::string signature;
  if (parts.size() != 3 || !absl::WebSafeBase64Unescape(parts[2], &signature)) {
    return InvalidToken("the token is not a JSON Web Token");
  }
  const std::optional<json> header = DecodeObject(parts[0]);
  const std::optional<json> claims = DecodeObject(parts[1]);
  if (!header || !claims) return InvalidToken("the token is not a JSON Web Token");
  if (StringOf(*header, "alg") != "RS256") {
    return InvalidToken("the token is not signed with RS256");
  }
  TokenClaims result{StringOf(*claims, "iss"), StringOf(*claims, "sub"), StringOf(*claims, "aud"),
                     std::nullopt};
  const absl::string_view signed_text = token.substr(0, parts[0].size() + 1 + parts[1].size());
  if (auto s = CheckKey(result.issuer, keys_of(result.issuer), signed_text, signature); !s.ok()) {
    return s;
  }
  if (auto s = CheckTimes(*claims, now); !s.ok()) return s;
  if (claims->contains("scope")) result.scope = StringOf(*claims, "scope");
  return result;
}

bool IncludesPubSub(absl::string_view scopes) {
  const std::vector<absl::string_view> list = absl::StrSplit(scopes, ' ');
  return std::any_of(list.begin(), list.end(), [](absl::string_view scope) {
    return std::find(std::begin(kScopes), std::end(kScopes), scope) != std::end(kScopes);
  });
}

}  // namespace postbox::emulator
