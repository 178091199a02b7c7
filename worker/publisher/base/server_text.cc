#include "worker/publisher/base/server_text.h"

#include "proto/rules/utf8.h"

extern "C" {
#include <mb/pg_wchar.h>
}

namespace postbox::publisher {

namespace {

// And not NUL.
bool IsAscii(char c) { return static_cast<signed char>(c) > 0; }

}  // namespace

std::string ServerText(std::string_view text) {
  std::string plain(text);
  if (std::all_of(text.begin(), text.end(), IsAscii)) return plain;
  const bool utf8 = pubsub::IsValidUtf8(text) && text.find('\0') == std::string_view::npos;
  if (utf8 && GetDatabaseEncoding() == PG_UTF8) return plain;
  if (utf8) {
    try {
      const char* converted = Pg(
          [&] { return pg_any_to_server(plain.c_str(), static_cast<int>(plain.size()), PG_UTF8); });
      return converted;
    } catch (const PostgresError&) {
      // It has a character that the encoding of the database has not.
    }
  }
  for (char& c : plain) {
    if (!IsAscii(c)) c = '?';
  }
  return plain;
}

std::string Shortened(const std::string& text, std::size_t size) {
  if (text.size() <= size) return text;
  const int length = Pg([&] {
    return pg_mbcliplen(text.c_str(), static_cast<int>(text.size()), static_cast<int>(size));
  });
  return text.substr(0, static_cast<std::size_t>(length)) + "...";
}

}  // namespace postbox::publisher
