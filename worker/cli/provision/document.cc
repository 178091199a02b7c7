#include "worker/cli/provision/document.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/rules/utf8.h"

namespace postbox::cli {
namespace {

// A document that is refused; the text says why.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string TwiceError(const std::string& key) {
  return "the key " + pubsub::Shown(key, 80) + " occurs twice in one mapping";
}

// The line and column of a byte, both from 1 on.
std::string At(const std::string& text, size_t byte) {
  const size_t end = std::min(byte, text.size());
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  const size_t begin = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = end - (begin == std::string::npos ? 0 : begin + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": ";
}

Json ParseJson(const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  size_t values = 0;
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDocumentDepth) throw Refused("it is nested too deeply");
    if (++values > kMaxDocumentValues) throw Refused("it has too many values");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw Refused(TwiceError(parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return Json::parse(text, look);
  } catch (const Json::parse_error& error) {
    throw Refused(At(text, error.byte == 0 ? 0 : error.byte - 1) + "this is not JSON");
  } catch (const Json::out_of_range&) {
    throw Refused("a number in it is too large");
  }
}

template <class Number>
bool ReadNumber(std::string_view text, Number* number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return problem == std::errc() && end == text.data() + text.size();
}

Json PlainScalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return nullptr;
  }
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  // "inf" and "nan" are texts here.
  if (text.find_first_not_of("+-.0123456789eE") != std::string::npos) return text;
  int64_t whole = 0;
  if (ReadNumber(text, &whole)) return whole;
  double fraction = 0;
  if (ReadNumber(text, &fraction)) return fraction;
  return text;
}

class YamlReader {
 public:
  Json Read(const YAML::Node& node, int depth = 0) {
    if (depth > kMaxDocumentDepth) Refuse(node, "it is nested too deeply");
    if (++values_ > kMaxDocumentValues) Refuse(node, "it has too many values");
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        // "!" is the tag of what stands in quotes or is a block.
        return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str"
                   ? Json(node.Scalar())
                   : PlainScalar(node.Scalar());
      case YAML::NodeType::Sequence: {
        Json list = Json::array();
        for (const YAML::Node& one : node) list.push_back(Read(one, depth + 1));
        return list;
      }
      case YAML::NodeType::Map:
        return ReadMap(node, depth);
      default:
        return nullptr;
    }
  }

 private:
  [[noreturn]] static void Refuse(const YAML::Node& node, const std::string& why) {
    throw Refused("line " + std::to_string(node.Mark().line + 1) + ", column " +
                  std::to_string(node.Mark().column + 1) + ": " + why);
  }

  Json ReadMap(const YAML::Node& node, int depth) {
    Json map = Json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) Refuse(entry.first, "a key must be a string");
      const std::string& key = entry.first.Scalar();
      if (map.contains(key)) Refuse(entry.first, TwiceError(key));
      map[key] = Read(entry.second, depth + 1);
    }
    return map;
  }

  size_t values_ = 0;
};

Json ParseYaml(const std::string& text) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) throw Refused("there is more than one YAML document in it");
    return documents.empty() ? Json() : YamlReader().Read(documents.front());
  } catch (const YAML::Exception& error) {
    throw Refused("line " + std::to_string(error.mark.line + 1) + ", column " +
                  std::to_string(error.mark.column + 1) + ": " + error.msg);
  }
}

}  // namespace

std::optional<Json> ParseDocument(const std::string& name, const std::string& text,
                                  std::string* error) {
  try {
    if (text.size() > kMaxDocumentBytes) throw Refused("it has more than 10 MB");
    const size_t invalid = pubsub::FirstInvalidUtf8(text);
    if (invalid < text.size()) throw Refused(At(text, invalid) + "this is not UTF-8");
    return name.ends_with(".json") || Json::accept(text) ? ParseJson(text) : ParseYaml(text);
  } catch (const Refused& refused) {
    *error = refused.what();
    return std::nullopt;
  }
}

}  // namespace postbox::cli
