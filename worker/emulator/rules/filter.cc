#include "worker/emulator/rules/filter.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

struct Filter::Node {
  enum class Kind { kAnd, kOr, kNot, kHas, kEquals, kPrefix };
  Kind kind = Kind::kHas;
  std::string key;
  std::string value;
  std::vector<std::shared_ptr<const Node>> operands;  // of kAnd, kOr and kNot

  bool Matches(const google::protobuf::Map<std::string, std::string>& attributes) const {
    switch (kind) {
      case Kind::kAnd:
        for (const auto& operand : operands) {
          if (!operand->Matches(attributes)) return false;
        }
        return true;
      case Kind::kOr:
        for (const auto& operand : operands) {
          if (operand->Matches(attributes)) return true;
        }
        return false;
      case Kind::kNot:
        return !operands.front()->Matches(attributes);
      default:
        break;
    }
    const auto found = attributes.find(key);
    if (found == attributes.end()) return false;
    if (kind == Kind::kEquals) return found->second == value;
    return kind == Kind::kHas || absl::StartsWith(found->second, value);
  }
};

namespace {

using Node = Filter::Node;
using NodePtr = std::shared_ptr<const Node>;

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}
bool IsKeyCharacter(char c) { return IsWordCharacter(c) || c == '-'; }
bool IsKeyword(absl::string_view word) { return word == "AND" || word == "OR" || word == "NOT"; }

// Recursive descent. The nesting is limited by the length of the text. The first error is kept, and
// everything returns null then.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<NodePtr> Run() {
    NodePtr root = Expression();
    if (root != nullptr && !AtEnd()) root = Fail(absl::StrCat("unexpected ", Here()));
    if (root == nullptr) return absl::InvalidArgumentError(error_);
    return root;
  }

 private:
  NodePtr Expression();
  NodePtr Term();
  NodePtr Simple();
  NodePtr HasPrefix();
  NodePtr OfAttribute();
  bool Key(std::string* key);
  bool String(std::string* value);
  bool Escape(std::string* value);
  std::optional<uint32_t> Digits(size_t count, uint32_t base);

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }
  bool Next(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Take(absl::string_view token) {
    SkipSpace();
    if (!absl::StartsWith(text_.substr(at_), token)) return false;
    at_ += token.size();
    return true;
  }
  // The word that begins here, without taking it.
  absl::string_view Word() {
    SkipSpace();
    size_t end = at_;
    while (end < text_.size() && IsWordCharacter(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool TakeWord(absl::string_view word) {
    if (Word() != word) return false;
    at_ += word.size();
    return true;
  }
  // What is here, for an error.
  std::string Here() {
    if (AtEnd()) return "end";
    const absl::string_view word = Word();
    return absl::StrCat("\"", word.empty() ? text_.substr(at_, 1) : word, "\"");
  }
  std::nullptr_t Fail(absl::string_view what) {
    SkipSpace();
    return FailAt(at_, what);
  }
  std::nullptr_t FailAt(size_t at, absl::string_view what) {
    if (error_.empty()) error_ = absl::StrCat("invalid filter: ", what, ", at byte ", at);
    return nullptr;
  }
  bool Expect(absl::string_view token) {
    if (Take(token)) return true;
    Fail(absl::StrCat("expected \"", token, "\" instead of ", Here()));
    return false;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

NodePtr Parser::Expression() {
  NodePtr first = Term();
  if (first == nullptr) return nullptr;
  const absl::string_view word = Word();
  if (word != "AND" && word != "OR") return first;
  auto node = std::make_shared<Node>();
  node->kind = word == "AND" ? Node::Kind::kAnd : Node::Kind::kOr;
  node->operands.push_back(std::move(first));
  while (TakeWord(word)) {
    NodePtr operand = Term();
    if (operand == nullptr) return nullptr;
    node->operands.push_back(std::move(operand));
  }
  if (Word() == "AND" || Word() == "OR") {
    return Fail("AND and OR together need parentheses around one of them");
  }
  return node;
}

NodePtr Parser::Term() {
  if (!TakeWord("NOT") && !Take("-")) return Simple();
  NodePtr operand = Simple();
  if (operand == nullptr) return nullptr;
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::kNot;
  node->operands.push_back(std::move(operand));
  return node;
}

NodePtr Parser::Simple() {
  if (Take("(")) {
    NodePtr inner = Expression();
    if (inner == nullptr || !Expect(")")) return nullptr;
    return inner;
  }
  if (TakeWord("attributes")) return OfAttribute();
  if (TakeWord("hasPrefix")) return HasPrefix();
  const std::string here = Here();
  if (const absl::string_view word = Word();
      !word.empty() && absl::StartsWith(text_.substr(at_ + word.size()), "(")) {
    return Fail(absl::StrCat("unknown function ", here, "; hasPrefix is the only one"));
  }
  return Fail(absl::StrCat(
      "expected an expression that begins with attributes or hasPrefix instead of ", here));
}

NodePtr Parser::OfAttribute() {
  auto node = std::make_shared<Node>();
  if (Take(":")) {
    if (!Key(&node->key)) return nullptr;
    return node;
  }
  if (!Take(".")) return Fail("attributes must be followed by : or . and a key");
  if (!Key(&node->key)) return nullptr;
  const bool unequal = Take("!=");
  if (!unequal && !Take("=")) {
    return Fail(absl::StrCat("expected = or != instead of ", Here(),
                             "; attributes:KEY asks whether there is an attribute"));
  }
  if (!String(&node->value)) return nullptr;
  node->kind = Node::Kind::kEquals;
  if (!unequal) return node;
  auto negated = std::make_shared<Node>();
  negated->kind = Node::Kind::kNot;
  negated->operands.push_back(std::move(node));
  return negated;
}

NodePtr Parser::HasPrefix() {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::kPrefix;
  if (!Expect("(")) return nullptr;
  if (!TakeWord("attributes")) {
    return Fail(absl::StrCat("expected attributes.KEY instead of ", Here()));
  }
  if (!Expect(".") || !Key(&node->key) || !Expect(",") || !String(&node->value) || !Expect(")")) {
    return nullptr;
  }
  return node;
}

bool Parser::Key(std::string* key) {
  SkipSpace();
  const size_t begin = at_;
  if (Next('"')) {
    if (!String(key)) return false;
    if (key->empty()) FailAt(begin, "a key must not be empty");
    return !key->empty();
  }
  while (at_ < text_.size() && IsKeyCharacter(text_[at_])) ++at_;
  const absl::string_view word = text_.substr(begin, at_ - begin);
  *key = std::string(word);
  if (word.empty()) {
    Fail("expected a key: letters, digits, _ and -, or a string in double quotes");
  } else if (IsKeyword(word)) {
    FailAt(begin, absl::StrCat("the key ", word, " must be in double quotes"));
  } else {
    return true;
  }
  return false;
}

bool Parser::String(std::string* value) {
  if (!Take("\"")) {
    Fail("expected a string in double quotes");
    return false;
  }
  while (at_ < text_.size() && !Next('"')) {
    const char c = text_[at_];
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      FailAt(at_, "a control character in a string must be escaped");
      return false;
    }
    ++at_;
    if (c != '\\') {
      value->push_back(c);
    } else if (!Escape(value)) {
      FailAt(at_, "unknown escape sequence");
      return false;
    }
  }
  if (Take("\"")) return true;
  Fail("a string does not end");
  return false;
}

// The number in the next `count` digits; takes them.
std::optional<uint32_t> Parser::Digits(size_t count, uint32_t base) {
  if (text_.size() - at_ < count) return std::nullopt;
  uint32_t number = 0;
  for (const char c : text_.substr(at_, count)) {
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    const int digit = lower >= '0' && lower <= '9'   ? lower - '0'
                      : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                     : 16;
    if (static_cast<uint32_t>(digit) >= base) return std::nullopt;
    number = number * base + static_cast<uint32_t>(digit);
  }
  at_ += count;
  return number;
}

void AppendUtf8(uint32_t code, std::string* text) {
  const auto add = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
    return;
  }
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xE0 | code >> 12);
    } else {
      add(0xF0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3F));
    }
    add(0x80 | (code >> 6 & 0x3F));
  }
  add(0x80 | (code & 0x3F));
}

bool Parser::Escape(std::string* value) {
  constexpr absl::string_view kNames = "\\\"'abfnrtv";
  constexpr absl::string_view kValues = "\\\"'\a\b\f\n\r\t\v";
  if (at_ == text_.size()) return false;
  const char name = text_[at_];
  if (const size_t found = kNames.find(name); found != absl::string_view::npos) {
    value->push_back(kValues[found]);
    ++at_;
    return true;
  }
  std::optional<uint32_t> code;
  if (name >= '0' && name <= '3') {
    code = Digits(3, 8);
  } else if (name == 'x' || name == 'u' || name == 'U') {
    ++at_;
    code = Digits(name == 'x' ? 2 : name == 'u' ? 4 : 8, 16);
  }
  if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF)) return false;
  AppendUtf8(*code, value);
  return true;
}

}  // namespace

absl::StatusOr<Filter> Filter::Parse(absl::string_view text) {
  if (text.size() > kMaxFilterBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a filter has ", text.size(), " bytes, at most ", kMaxFilterBytes));
  }
  auto root = Parser(text).Run();
  if (!root.ok()) return root.status();
  return Filter(*std::move(root));
}

bool Filter::Matches(const pb::PubsubMessage& message) const {
  return root_->Matches(message.attributes());
}

}  // namespace postbox::emulator
