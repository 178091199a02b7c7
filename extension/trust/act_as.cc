#include "extension/trust/act_as.h"

namespace postbox {

namespace {

// Settings that any role may change, and with which its code would end the process that calls it:
// the worker of all publications, or a session that looks at a view. While a restricted
// operation lasts, they are for superusers. (Postgres allocates a setting once.)
class DeadlySettings {
 public:
  void Reserve() {
    if (depth_++ > 0) return;
    if (!found_) {
      found_ = true;
      settings_ = {FindSetting("exit_on_error"), FindSetting("transaction_timeout")};
    }
    SetContext(PGC_SUSET);
  }
  void Free() {
    if (--depth_ == 0) SetContext(PGC_USERSET);
  }

 private:
  void SetContext(GucContext context) const {
    for (config_generic* setting : settings_) {
      if (setting != nullptr) setting->context = context;
    }
  }

  int depth_ = 0;
  bool found_ = false;
  std::array<config_generic*, 2> settings_{};
};
DeadlySettings deadly_settings;

}  // namespace

Trust TrustIn(Oid owner) {
  const bool trusted = Pg([&] { return MemberCanSetRole(owner, GetUserId()); });
  return trusted ? Trust::kTrusted : Trust::kRestricted;
}

ActAs::ActAs(Oid role, Trust trust)
    : restricted_(trust == Trust::kRestricted),
      nest_level_(NewGUCNestLevel()),
      exceptions_(std::uncaught_exceptions()) {
  GetUserIdAndSecContext(&saved_role_, &saved_context_);
  int context = saved_context_ | SECURITY_LOCAL_USERID_CHANGE;
  if (restricted_) {
    context |= SECURITY_RESTRICTED_OPERATION;
    deadly_settings.Reserve();
  }
  SetUserIdAndSecContext(role, context);
}

ActAs::~ActAs() {
  // After an error the abort of the (sub)transaction restores all settings.
  if (std::uncaught_exceptions() == exceptions_) AtEOXact_GUC(false, nest_level_);
  SetUserIdAndSecContext(saved_role_, saved_context_);
  if (restricted_) deadly_settings.Free();
}

FixedSearchPath::FixedSearchPath(const char* path)
    : nest_level_(NewGUCNestLevel()), exceptions_(std::uncaught_exceptions()) {
  Pg([&] {
    set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                      false);
    if (quote_all_identifiers) {
      set_config_option("quote_all_identifiers", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                        true, 0, false);
    }
    if (!row_security) {
      set_config_option("row_security", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                        false);
    }
  });
}

FixedSearchPath::~FixedSearchPath() {
  // After an error the abort of the (sub)transaction restores all settings.
  if (std::uncaught_exceptions() == exceptions_) AtEOXact_GUC(false, nest_level_);
}

}  // namespace postbox
