// The filter of a subscription: an expression over the attributes of a message.
//
//   expression = term { "AND" term } | term { "OR" term }
//   term       = [ "NOT" | "-" ] simple
//   simple     = "(" expression ")"
//              | "attributes" ":" key                               has the attribute
//              | "attributes" "." key ( "=" | "!=" ) string
//              | "hasPrefix" "(" "attributes" "." key "," string ")"
//   key        = letters, digits, "_" and "-", or a string
//   string     = in double quotes, with \\ \" \' \a \b \f \n \r \t \v \xHH \ooo \uHHHH \UHHHHHHHH
//
// This is what Google documents, and no more: whatever the documentation does not show is refused,
// so that a filter that works here works there. In particular: AND and OR need parentheses where
// both occur; operators are upper case; a comparison begins with a key and ends with a string;
// hasPrefix is the only function; white space, quotes and control characters must be in strings,
// the latter escaped. The documentation leaves open what \x and \ooo above 7F mean: they are code
// points here.
//
// A message without the attribute satisfies `!=`, as it satisfies `NOT ... =`.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_FILTER_H_
#define POSTBOX_WORKER_EMULATOR_RULES_FILTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {

class Filter {
 public:
  struct Node;

  // INVALID_ARGUMENT with the place and what is wrong there. An empty text has no filter to parse
  // and is refused, too.
  static absl::StatusOr<Filter> Parse(absl::string_view text);

  bool Matches(const google::pubsub::v1::PubsubMessage& message) const;

 private:
  explicit Filter(std::shared_ptr<const Node> root) : root_(std::move(root)) {}

  std::shared_ptr<const Node> root_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_FILTER_H_
