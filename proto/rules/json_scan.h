// Finds members of a JSON text (RFC 8259) by their paths, and takes nothing else of it apart.
//
// Plain header: standard library only. A payload may hold what a database cannot, such as \u0000 in
// a text. So only the values that are asked for are made of it. All of the text is checked to be
// JSON in the same pass. That the bytes are UTF-8 is the caller's to check.
//
// Of several members with one name the last one counts. A name may be written with escapes.
#ifndef POSTBOX_PROTO_RULES_JSON_SCAN_H_
#define POSTBOX_PROTO_RULES_JSON_SCAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace postbox::json {

enum class Kind : std::uint8_t { kAbsent, kNull, kBoolean, kNumber, kString, kArray, kObject };

// Part of a JSON text.
struct Value {
  Kind kind = Kind::kAbsent;
  std::string_view text;  // its bytes, a string with its quotes
  // How many names of the path lead to it. Fewer than the path has: what should be an object is
  // this value. (If that is null, so is what is below it, and `names` is that of the path.)
  std::size_t names = 0;
};

enum class TextFlaw : std::uint8_t { kNone, kNul, kSurrogate };
struct Decoded {
  std::size_t length = 0;
  TextFlaw flaw = TextFlaw::kNone;  // what no text can hold; then the length means nothing
};

// Reads one text from its beginning. After a function has returned false it is of no use.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  const char* at() const { return at_; }
  bool AtEnd() const { return at_ == end_; }
  // How many arrays and objects were open at once in the values that were skipped.
  std::size_t deepest() const { return deepest_; }

  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool Take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  // The kind of the value that begins here, by its first byte.
  Kind Peek() const {
    if (at_ == end_) return Kind::kAbsent;
    switch (*at_) {
      case 'n':
        return Kind::kNull;
      case 't':
      case 'f':
        return Kind::kBoolean;
      case '"':
        return Kind::kString;
      case '[':
        return Kind::kArray;
      case '{':
        return Kind::kObject;
      default:
        return *at_ == '-' || IsDigit(*at_) ? Kind::kNumber : Kind::kAbsent;
    }
  }

  // A string with its quotes; `inside` is what is between them.
  bool SkipString(std::string_view* inside, bool* escaped) {
    if (!Take('"')) return false;
    const char* begin = at_;
    *escaped = false;
    for (; at_ != end_; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"') {
        *inside = {begin, static_cast<std::size_t>(at_ - begin)};
        ++at_;
        return true;
      }
      if (byte < 0x20) return false;
      if (byte != '\\') continue;
      *escaped = true;
      ++at_;
      if (!SkipEscape()) return false;
    }
    return false;
  }

  // The name of a member, and the colon.
  bool SkipName(std::string_view* inside, bool* escaped) {
    SkipSpace();
    if (!SkipString(inside, escaped)) return false;
    SkipSpace();
    if (!Take(':')) return false;
    SkipSpace();
    return true;
  }

  // A value of any kind. `open` is how many arrays and objects it is in.
  bool SkipValue(std::size_t open = 0) {
    std::string closing;  // of the arrays and objects that are open
    for (;;) {
      SkipSpace();
      bool ended = false;
      if (!BeginValue(&closing, &ended)) return false;
      deepest_ = std::max(deepest_, open + closing.size());
      if (ended && !EndValues(&closing)) return false;
      if (closing.empty()) return true;
    }
  }

 private:
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsHex(char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }

  // Leaves at_ at the last byte of the escape.
  bool SkipEscape() {
    if (at_ == end_) return false;
    if (*at_ != 'u') return std::string_view("\"\\/bfnrt").find(*at_) != std::string_view::npos;
    if (end_ - at_ < 5) return false;
    at_ += 4;
    return IsHex(at_[-3]) && IsHex(at_[-2]) && IsHex(at_[-1]) && IsHex(at_[0]);
  }

  bool SkipDigits() {
    const char* begin = at_;
    while (at_ != end_ && IsDigit(*at_)) ++at_;
    return at_ != begin;
  }

  bool SkipNumber() {
    Take('-');
    if (!Take('0') && !SkipDigits()) return false;
    if (Take('.') && !SkipDigits()) return false;
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      return SkipDigits();
    }
    return true;
  }

  bool SkipWord(std::string_view word) {
    if (static_cast<std::size_t>(end_ - at_) < word.size()) return false;
    if (std::string_view(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  // A scalar, or the beginning of an array or an object. `ended`: the value ends here.
  bool BeginValue(std::string* closing, bool* ended) {
    std::string_view inside;
    bool escaped = false;
    *ended = true;
    switch (Peek()) {
      case Kind::kNull:
        return SkipWord("null");
      case Kind::kBoolean:
        return SkipWord(*at_ == 't' ? "true" : "false");
      case Kind::kNumber:
        return SkipNumber();
      case Kind::kString:
        return SkipString(&inside, &escaped);
      case Kind::kArray:
        ++at_;
        closing->push_back(']');
        SkipSpace();
        *ended = at_ != end_ && *at_ == ']';
        return true;
      case Kind::kObject:
        ++at_;
        closing->push_back('}');
        SkipSpace();
        *ended = at_ != end_ && *at_ == '}';
        return *ended || SkipName(&inside, &escaped);
      default:
        return false;
    }
  }

  // Behind a value: what closes, and the comma before the next value.
  bool EndValues(std::string* closing) {
    std::string_view inside;
    bool escaped = false;
    while (!closing->empty()) {
      SkipSpace();
      if (Take(closing->back())) {
        closing->pop_back();
        continue;
      }
      if (!Take(',')) return false;
      return closing->back() == ']' || SkipName(&inside, &escaped);
    }
    return true;
  }

  const char* at_;
  const char* const end_;
  std::size_t deepest_ = 0;
};

namespace internal {

inline unsigned HexValue(const char* digits) {
  unsigned value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = digits[i];
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return value;
}

inline std::size_t WriteUtf8(unsigned code, char* out) {
  if (code < 0x80) {
    out[0] = static_cast<char>(code);
    return 1;
  }
  const std::size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (std::size_t i = length - 1; i > 0; --i) {
    out[i] = static_cast<char>(0x80 | (code & 0x3F));
    code >>= 6;
  }
  out[0] = static_cast<char>((0xF00 >> length & 0xFF) | code);
  return length;
}

}  // namespace internal

// What a string says: `inside` is what is between its quotes. `out` has room for as many bytes.
inline Decoded Decode(std::string_view inside, char* out) {
  char* to = out;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\') {
      *to++ = inside[i];
      continue;
    }
    const char c = inside[++i];
    if (c != 'u') {
      const std::string_view from = "bfnrt", escaped = "\b\f\n\r\t";
      const std::size_t known = from.find(c);
      *to++ = known == std::string_view::npos ? c : escaped[known];
      continue;
    }
    unsigned code = internal::HexValue(inside.data() + i + 1);
    i += 4;
    if (code == 0) return {0, TextFlaw::kNul};
    if (code >= 0xDC00 && code <= 0xDFFF) return {0, TextFlaw::kSurrogate};
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (inside.size() - i < 7 || inside[i + 1] != '\\' || inside[i + 2] != 'u') {
        return {0, TextFlaw::kSurrogate};
      }
      const unsigned low = internal::HexValue(inside.data() + i + 3);
      if (low < 0xDC00 || low > 0xDFFF) return {0, TextFlaw::kSurrogate};
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      i += 6;
    }
    to += internal::WriteUtf8(code, to);
  }
  return {static_cast<std::size_t>(to - out), TextFlaw::kNone};
}

// The next element of an array, which is known to be JSON. The scanner stands behind `[` or the
// last element; false at the end.
inline bool NextElement(Scanner* scanner, std::string_view* text) {
  scanner->SkipSpace();
  scanner->Take(',');
  scanner->SkipSpace();
  if (scanner->AtEnd() || scanner->Take(']')) return false;
  const char* begin = scanner->at();
  if (!scanner->SkipValue()) return false;
  *text = {begin, static_cast<std::size_t>(scanner->at() - begin)};
  return true;
}

struct ObjectMember {
  std::string_view name;  // without its quotes, escapes as they are
  bool escaped = false;   // it has some
  std::string_view value;
};

// The next member of an object, which is known to be JSON. The scanner stands behind `{` or the
// last member; false at the end.
inline bool NextMember(Scanner* scanner, ObjectMember* member) {
  scanner->SkipSpace();
  scanner->Take(',');
  scanner->SkipSpace();
  if (scanner->Take('}') || !scanner->SkipName(&member->name, &member->escaped)) return false;
  const char* begin = scanner->at();
  if (!scanner->SkipValue()) return false;
  member->value = {begin, static_cast<std::size_t>(scanner->at() - begin)};
  return true;
}

// The paths that are looked for: names in UTF-8.
class Paths {
 public:
  Paths() : nodes_(1) {}

  // Their number in the order in which they are added, from 0. A path has one name at least.
  std::size_t Add(const std::vector<std::string>& path) {
    std::size_t node = 0;
    for (const std::string& name : path) node = Child(node, name);
    nodes_[node].places.push_back(count_);
    return count_++;
  }
  std::size_t count() const { return count_; }

 private:
  friend class MemberSearch;
  struct Node {
    std::vector<std::pair<std::string, std::size_t>> children;
    std::vector<std::size_t> places;
  };

  std::size_t Child(std::size_t node, const std::string& name) {
    if (const std::size_t child = Find(node, name); child != 0) return child;
    nodes_[node].children.emplace_back(name, nodes_.size());
    std::sort(nodes_[node].children.begin(), nodes_[node].children.end());
    nodes_.emplace_back();
    return nodes_.size() - 1;
  }
  // 0, which is the root, if there is none.
  std::size_t Find(std::size_t node, std::string_view name) const {
    const auto& children = nodes_[node].children;
    const auto found = std::lower_bound(
        children.begin(), children.end(), name,
        [](const auto& child, std::string_view wanted) { return child.first < wanted; });
    return found != children.end() && found->first == name ? found->second : 0;
  }

  std::vector<Node> nodes_;
  std::size_t count_ = 0;
};

// What a text was found to be.
struct Found {
  bool valid = false;         // JSON
  Kind kind = Kind::kAbsent;  // of all of it; values are looked for in an object
  std::size_t deepest = 0;    // how many arrays and objects are open at once
};

// One pass over a text.
class MemberSearch {
 public:
  // `values`: one for each path.
  MemberSearch(const Paths& paths, std::string_view text, std::vector<Value>* values)
      : paths_(paths), values_(values), scanner_(text), met_(paths.nodes_.size()) {}

  Found Run() {
    values_->assign(paths_.count(), Value());
    Found found;
    scanner_.SkipSpace();
    found.kind = scanner_.Peek();
    const bool read = found.kind == Kind::kObject ? ReadObject(0, 1) : scanner_.SkipValue();
    scanner_.SkipSpace();
    found.valid = read && scanner_.AtEnd();
    found.deepest = std::max(scanner_.deepest(), deepest_);
    return found;
  }

 private:
  // An object whose members are looked for below `node`; `open` counts it, too.
  bool ReadObject(std::size_t node, std::size_t open) {
    deepest_ = std::max(deepest_, open);
    scanner_.Take('{');
    scanner_.SkipSpace();
    if (scanner_.Take('}')) return true;
    do {
      std::string_view name;
      bool escaped = false;
      if (!scanner_.SkipName(&name, &escaped)) return false;
      const std::size_t child = escaped ? FindDecoded(node, name) : paths_.Find(node, name);
      if (!(child == 0 ? scanner_.SkipValue(open) : ReadWanted(child, open))) return false;
      scanner_.SkipSpace();
    } while (scanner_.Take(','));
    return scanner_.Take('}');
  }

  std::size_t FindDecoded(std::size_t node, std::string_view name) const {
    std::string decoded(name.size(), '\0');
    const Decoded result = Decode(name, decoded.data());
    if (result.flaw != TextFlaw::kNone) return 0;
    return paths_.Find(node, std::string_view(decoded).substr(0, result.length));
  }

  bool ReadWanted(std::size_t node, std::size_t open) {
    if (met_[node] != 0) Forget(node);
    met_[node] = 1;
    Value value;
    value.kind = scanner_.Peek();
    value.names = open;
    const char* begin = scanner_.at();
    const bool inner = value.kind == Kind::kObject && !paths_.nodes_[node].children.empty();
    if (!(inner ? ReadObject(node, open + 1) : scanner_.SkipValue(open))) return false;
    value.text = {begin, static_cast<std::size_t>(scanner_.at() - begin)};
    for (const std::size_t place : paths_.nodes_[node].places) (*values_)[place] = value;
    if (!inner) SetBelow(node, value);
    return true;
  }

  // Only what was met has been set.
  void Forget(std::size_t node) {
    met_[node] = 0;
    for (const std::size_t place : paths_.nodes_[node].places) (*values_)[place] = Value();
    for (const auto& [name, child] : paths_.nodes_[node].children) {
      if (met_[child] != 0) Forget(child);
    }
  }

  // `value` is at `node` and no object.
  void SetBelow(std::size_t node, Value value) {
    for (const auto& [name, child] : paths_.nodes_[node].children) {
      met_[child] = 1;
      Value below = value;
      if (value.kind == Kind::kNull) ++below.names;
      for (const std::size_t place : paths_.nodes_[child].places) (*values_)[place] = below;
      SetBelow(child, below);
    }
  }

  const Paths& paths_;
  std::vector<Value>* const values_;
  Scanner scanner_;
  std::vector<char> met_;  // nodes that were found in the objects that are open
  std::size_t deepest_ = 0;
};

}  // namespace postbox::json

#endif  // POSTBOX_PROTO_RULES_JSON_SCAN_H_
