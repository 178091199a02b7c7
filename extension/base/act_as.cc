#include "extension/base/act_as.h"

namespace postbox {

ActAs::ActAs(Oid role, Trust trust)
    : nest_level_(NewGUCNestLevel()), exceptions_(std::uncaught_exceptions()) {
  GetUserIdAndSecContext(&saved_role_, &saved_context_);
  int context = saved_context_ | SECURITY_LOCAL_USERID_CHANGE;
  if (trust == Trust::kRestricted) context |= SECURITY_RESTRICTED_OPERATION;
  SetUserIdAndSecContext(role, context);
}

ActAs::~ActAs() {
  // After an error the abort of the (sub)transaction restores all settings.
  if (std::uncaught_exceptions() == exceptions_) AtEOXact_GUC(false, nest_level_);
  SetUserIdAndSecContext(saved_role_, saved_context_);
}

FixedSearchPath::FixedSearchPath(const char* path)
    : nest_level_(NewGUCNestLevel()), exceptions_(std::uncaught_exceptions()) {
  Pg([&] {
    set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                      false);
  });
}

FixedSearchPath::~FixedSearchPath() {
  // After an error the abort of the (sub)transaction restores all settings.
  if (std::uncaught_exceptions() == exceptions_) AtEOXact_GUC(false, nest_level_);
}

}  // namespace postbox
