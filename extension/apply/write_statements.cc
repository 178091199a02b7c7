#include "extension/apply/write_statements.h"

namespace postbox {
namespace {

// A payload may lack fields in any combination; the statements of this many combinations are kept.
constexpr size_t kMostPartial = 63;

}  // namespace

WriteStatements::WriteStatements(TargetSql sql, std::vector<Oid> types)
    : sql_(std::move(sql)),
      types_(std::move(types)),
      all_present_(types_.size(), '1'),
      whole_(
          std::make_shared<OfRow>(OfRow{Statement(sql_.Upsert(all_present_), types_),
                                        {},
                                        Statement::ByKey(sql_.Difference(all_present_), types_)})) {
}

std::shared_ptr<WriteStatements::OfRow> WriteStatements::For(const std::string& present) {
  if (present == all_present_) return whole_;
  const auto found = partial_.find(present);
  if (found != partial_.end()) return found->second;
  if (partial_.size() >= kMostPartial) partial_.clear();
  auto made = std::make_shared<OfRow>(OfRow{Statement(sql_.Upsert(present), types_),
                                            {},
                                            Statement::ByKey(sql_.Difference(present), types_)});
  if (!sql_.is_shadow()) made->update = Statement::ByKey(sql_.Update(present), types_);
  partial_.emplace(present, made);
  return made;
}

}  // namespace postbox
