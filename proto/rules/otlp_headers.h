// The metadata of requests to a collector of traces, as OTEL_EXPORTER_OTLP_HEADERS has it:
// name=value,name=value; the values are percent-encoded. They are secrets, mostly: no error has a
// value.
//
// Plain header: standard library only.
#ifndef POSTBOX_PROTO_RULES_OTLP_HEADERS_H_
#define POSTBOX_PROTO_RULES_OTLP_HEADERS_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace postbox::pubsub {

using OtlpHeaders = std::vector<std::pair<std::string, std::string>>;

namespace internal {

constexpr std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

constexpr int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

// False: a % without two digits, or a character that a value of metadata may not have.
inline bool DecodeHeaderValue(std::string_view text, std::string* value) {
  for (size_t i = 0; i < text.size(); ++i) {
    char character = text[i];
    if (character == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return false;
      character = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (character < 0x20 || character > 0x7e) return false;
    value->push_back(character);
  }
  return true;
}

// Of metadata that a client may set: gRPC itself aborts the process because of other names.
inline bool IsHeaderName(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits) &&
         !name.starts_with("grpc-") && !name.ends_with("-bin") && name != "te" &&
         name != "content-type";
}

}  // namespace internal

// On failure returns false and puts one lower-case phrase into `error`.
inline bool ParseOtlpHeaders(std::string_view text, OtlpHeaders* headers, std::string* error) {
  headers->clear();
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view header = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (internal::WithoutBlanks(header).empty()) continue;
    const size_t equals = header.find('=');
    std::string name(internal::WithoutBlanks(header.substr(0, equals)));
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (equals == std::string_view::npos) {
      *error = "a header has no \"=\": it must be NAME=VALUE";
      return false;
    }
    if (!internal::IsHeaderName(name)) {
      *error = "the name of header " + std::to_string(headers->size() + 1) +
               " is not one that gRPC takes";
      return false;
    }
    std::string value;
    if (!internal::DecodeHeaderValue(internal::WithoutBlanks(header.substr(equals + 1)), &value)) {
      *error = "the value of header \"" + name + "\" is not percent-encoded ASCII";
      return false;
    }
    headers->emplace_back(std::move(name), std::move(value));
  }
  return true;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_OTLP_HEADERS_H_
