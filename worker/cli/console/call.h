// A request to the API and its answer, without HTTP.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_CALL_H_
#define POSTBOX_WORKER_CLI_CONSOLE_CALL_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/cli/console/session.h"

namespace postbox::cli {

using JsonValue = nlohmann::ordered_json;

inline constexpr int kMostRows = 200;

struct Answer {
  int status = 200;
  std::string body = "{}";  // JSON
};

std::string Dump(const JsonValue& value);
Answer Give(const JsonValue& value);
// {"error": {"message": ..., "sqlstate": ...}}
Answer Refuse(int status, const std::string& message, const std::string& sqlstate = "");
// Of a statement that failed.
Answer Refuse(const puller::QueryResult& result);
// The JSON text that a statement has returned in its only row, or its error.
Answer Give(const puller::QueryResult& result);

inline puller::Parameter Number(int number) {
  return puller::Parameter::Text(std::to_string(number));
}

// The parameters of a GET. What is missing or empty is NULL.
class Arguments {
 public:
  explicit Arguments(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  std::optional<std::string> Text(const std::string& name) const;
  puller::Parameter Parameter(const std::string& name) const {
    return puller::Parameter::Text(Text(name));
  }
  // 1 to kMostRows; by default 50.
  int Limit() const;

 private:
  const std::map<std::string, std::string> values_;
};

// The parameters of a POST: members of a JSON object.
std::optional<std::string> TextMember(const JsonValue& order, const char* name);
// Texts; nothing if the member is not a list of 1 to kMostRows texts.
std::optional<std::vector<std::string>> ListMember(const JsonValue& order, const char* name);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_CALL_H_
