// JSON texts: what the scanner finds in a text is what it finds in the members that it took out of
// it, and a string that is decoded is valid UTF-8 if the text is.
#include "proto/rules/json_scan.h"

#include "proto/rules/json_number.h"
#include "proto/rules/utf8.h"
#include "tests/fuzz/fuzz.h"

using postbox::fuzz::Input;
using namespace postbox::json;

namespace {

void CheckString(std::string_view text) {
  const std::string_view inside = text.substr(1, text.size() - 2);
  std::string out(inside.size(), '\0');
  const Decoded decoded = Decode(inside, out.data());
  FUZZ_CHECK(decoded.length <= inside.size(), text);
  out.resize(decoded.length);
  if (decoded.flaw == TextFlaw::kNone && postbox::pubsub::IsValidUtf8(text)) {
    FUZZ_CHECK(postbox::pubsub::IsValidUtf8(out), text);
  }
}

void CheckNumber(std::string_view text) {
  char out[kMostDigits + 1];
  const std::string_view whole(out, WriteWhole(text, out));
  if (whole.empty()) return;
  FUZZ_CHECK(whole.find_first_not_of("-0123456789") == std::string_view::npos, text);
  if (whole.size() < 18) FUZZ_CHECK(Scaled(text, 0) == std::stoll(std::string(whole)), text);
}

// A value that was taken out is JSON by itself.
void CheckValue(const Value& value, std::string_view document) {
  if (value.kind == Kind::kAbsent) return;
  FUZZ_CHECK(value.text.data() >= document.data(), document);
  FUZZ_CHECK(value.text.data() + value.text.size() <= document.data() + document.size(), document);
  std::vector<Value> none;
  const Found found = MemberSearch(Paths(), value.text, &none).Run();
  FUZZ_CHECK(found.valid && found.kind == value.kind, value.text);
  if (value.kind == Kind::kString) CheckString(value.text);
  if (value.kind == Kind::kNumber) CheckNumber(value.text);
}

}  // namespace

// Two names, and a text.
FUZZ(Input* input) {
  const std::string outer(input->Line());
  const std::string inner(input->Line());
  const std::string_view text = input->Rest();
  Paths paths;
  paths.Add({outer});
  paths.Add({outer, inner});
  paths.Add({inner});
  std::vector<Value> values, none;
  const Found found = MemberSearch(paths, text, &values).Run();
  const Found plain = MemberSearch(Paths(), text, &none).Run();
  FUZZ_CHECK(found.valid == plain.valid, text);
  if (!found.valid) return;
  FUZZ_CHECK(found.kind == plain.kind && found.deepest == plain.deepest, text);
  for (const Value& value : values) CheckValue(value, text);
  if (values[0].kind != Kind::kObject) return;
  // What is below is what is found in the outer one alone.
  Paths below;
  below.Add({inner});
  MemberSearch(below, values[0].text, &none).Run();
  FUZZ_CHECK(none[0].kind == values[1].kind && none[0].text == values[1].text, text);
}
