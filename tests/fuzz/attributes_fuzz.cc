// The attributes of a message: times, trace ids, and the list of them.
#include "proto/rules/attributes.h"
#include "proto/rules/message_check.h"
#include "proto/rules/utf8.h"
#include "tests/fuzz/fuzz.h"

using postbox::fuzz::Input;
namespace rules = postbox::pubsub;

namespace {

// What is written is read as the same time, and what is read is written in one form.
void CheckTimes(std::string_view text, std::int64_t micros) {
  const std::int64_t inside =
      std::clamp(micros, rules::kMinRfc3339Micros, rules::kMaxRfc3339Micros);
  const std::string written = rules::FormatRfc3339(micros);
  std::int64_t read = 0;
  FUZZ_CHECK(rules::ParseRfc3339(written, &read), written);
  FUZZ_CHECK(read == inside, written);

  if (!rules::ParseRfc3339(text, &read)) return;
  FUZZ_CHECK(read >= rules::kMinRfc3339Micros && read <= rules::kMaxRfc3339Micros, text);
  const std::string normal = rules::FormatRfc3339(read);
  std::int64_t again = 0;
  FUZZ_CHECK(rules::ParseRfc3339(normal, &again) && again == read, normal);
  FUZZ_CHECK(normal.size() <= 27, normal);
}

// A part of a text that is shown to users is valid UTF-8 whatever the text is.
void CheckTexts(std::string_view text) {
  const std::size_t valid = rules::FirstInvalidUtf8(text);
  FUZZ_CHECK(valid <= text.size(), text);
  FUZZ_CHECK(rules::IsValidUtf8(text.substr(0, valid)), text);
  const std::string trace_id(rules::TraceIdOf(text));
  FUZZ_CHECK(trace_id.empty() || trace_id.size() == 32, text);
  for (const auto& problem :
       {rules::internal::CheckOrderingKey(text), rules::internal::CheckAttribute(text, text),
        rules::internal::CheckAttribute("name", text)}) {
    if (!problem) continue;
    FUZZ_CHECK(rules::IsValidUtf8(problem->Text()) && rules::IsValidUtf8(problem->hint), text);
    FUZZ_CHECK(problem->Text().size() < 1000, text);
  }
}

// All standard attributes are there once with the value of their field, and the caller's follow.
void CheckList(std::string_view text, std::int64_t number, Input* input) {
  const rules::StandardAttributes standard({text, text, text, text, number, number, text});
  rules::Attributes extra;
  while (!input->empty() && extra.size() < 200) {
    const std::string name(input->Line());
    if (rules::FindAttribute(extra, name) == nullptr) extra.emplace_back(name, input->Line());
  }
  const auto all = standard.With(extra);
  for (std::size_t i = 0; i < rules::kStandardAttributes.size(); ++i) {
    FUZZ_CHECK(all[i].first == rules::kStandardAttributes[i], all[i].first);
    const bool is_text = i != 4 && i != 5;
    FUZZ_CHECK(!is_text || all[i].second == text, all[i].second);
  }
  std::size_t at = rules::kStandardAttributes.size();
  for (const auto& [name, value] : extra) {
    if (rules::IsStandardAttribute(name)) continue;
    FUZZ_CHECK(at < all.size() && all[at].first == name && all[at].second == value, name);
    ++at;
  }
  FUZZ_CHECK(at == all.size(), text);
}

}  // namespace

FUZZ(Input* input) {
  const std::string_view text = input->Line();
  const std::int64_t number = input->Integer();
  CheckTimes(text, number);
  CheckTexts(text);
  CheckList(text, number, input);
}
