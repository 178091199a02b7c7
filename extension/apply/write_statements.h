// The prepared statements that write one row of a target, or compare it, for each set of columns
// that events have had values for.
#ifndef POSTBOX_EXTENSION_APPLY_WRITE_STATEMENTS_H_
#define POSTBOX_EXTENSION_APPLY_WRITE_STATEMENTS_H_

#include "extension/apply/target_sql.h"
#include "extension/base/statement.h"

namespace postbox {

class WriteStatements {
 public:
  struct OfRow {
    Statement upsert;
    Statement update;  // without text if no column is absent, or in a shadow (shadow_marks.h)
    Statement difference;
  };

  // `types`: those of all columns.
  WriteStatements(TargetSql sql, std::vector<Oid> types);

  // `present` has '1' or '0' for each column. The caller keeps what it runs: a call within it may
  // remove it here.
  std::shared_ptr<OfRow> For(const std::string& present);

 private:
  const TargetSql sql_;
  const std::vector<Oid> types_;
  const std::string all_present_;
  const std::shared_ptr<OfRow> whole_;
  std::unordered_map<std::string, std::shared_ptr<OfRow>> partial_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_WRITE_STATEMENTS_H_
