// The dead letters that redrive_dead_letters and discard_dead_letters are called for.
#ifndef POSTBOX_EXTENSION_APPLY_LETTER_FILTER_H_
#define POSTBOX_EXTENSION_APPLY_LETTER_FILTER_H_

#include "extension/base/spi.h"

namespace postbox {

class LetterFilter {
 public:
  // The first arguments of both functions: inbox, aggregate_type, aggregate_id, event_type,
  // sqlstate, outcome, failed_before. One that is NULL says nothing.
  static constexpr int kArguments = 7;
  explicit LetterFilter(FunctionCallInfo fcinfo);

  bool empty() const { return where_.empty(); }
  // A condition on `d`, a row of postbox.dead_letter, which begins with " AND "; its parameters.
  const std::string& where() const { return where_; }
  Parameters& parameters() { return parameters_; }

 private:
  std::string where_;
  Parameters parameters_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_LETTER_FILTER_H_
