#include "worker/cli/console/call.h"

#include <algorithm>
#include <cstdlib>

namespace postbox::cli {
namespace {

struct StatusOfError {
  const char* prefix;  // of the SQLSTATE
  int status;
};
constexpr StatusOfError kStatuses[] = {
    {"42501", 403},                                                  // insufficient_privilege
    {"42704", 404}, {"42P01", 404}, {"3F000", 404}, {"42883", 404},  // there is no such thing
    {"22", 400},                                                     // a value is wrong
    {"57014", 503}, {"55P03", 503}, {"53", 503},    {"57", 503},     // it takes too long
    {"40", 503},    {"25", 409},    {"42809", 409}, {"55", 409},
};

}  // namespace

std::string Dump(const JsonValue& value) {
  return value.dump(-1, ' ', false, JsonValue::error_handler_t::replace);
}

Answer Give(const JsonValue& value) { return {200, Dump(value)}; }

Answer Refuse(int status, const std::string& message, const std::string& sqlstate) {
  JsonValue error = {{"message", message}};
  if (!sqlstate.empty()) error["sqlstate"] = sqlstate;
  return {status, Dump({{"error", error}})};
}

Answer Refuse(const puller::QueryResult& result) {
  int status = result.sqlstate().empty() ? 503 : 500;
  const auto* found = std::find_if(
      std::begin(kStatuses), std::end(kStatuses),
      [&](const StatusOfError& one) { return result.sqlstate().starts_with(one.prefix); });
  if (found != std::end(kStatuses)) status = found->status;
  return Refuse(status, result.error(), result.sqlstate());
}

Answer Give(const puller::QueryResult& result) {
  if (!result.ok()) return Refuse(result);
  if (result.rows() != 1) return Refuse(404, "there is no such row");
  return {200, result.text(0, 0)};
}

std::optional<std::string> Arguments::Text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

int Arguments::Limit() const {
  constexpr int kDefault = 50;
  const auto wanted = Text("limit");
  if (!wanted) return kDefault;
  return static_cast<int>(
      std::clamp<long>(std::strtol(wanted->c_str(), nullptr, 10), 1, kMostRows));
}

std::optional<std::string> TextMember(const JsonValue& order, const char* name) {
  const auto found = order.find(name);
  if (found == order.end() || !found->is_string()) return std::nullopt;
  auto text = found->get<std::string>();
  // A NUL would end the text on its way to the database.
  if (text.empty() || text.find('\0') != std::string::npos) return std::nullopt;
  return text;
}

std::optional<std::vector<std::string>> ListMember(const JsonValue& order, const char* name) {
  const auto found = order.find(name);
  if (found == order.end() || !found->is_array() || found->empty()) return std::nullopt;
  if (found->size() > static_cast<size_t>(kMostRows)) return std::nullopt;
  std::vector<std::string> texts;
  for (const JsonValue& one : *found) {
    if (!one.is_string()) return std::nullopt;
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

}  // namespace postbox::cli
