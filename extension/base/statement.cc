#include "extension/base/statement.h"

extern "C" {
#include <nodes/params.h>
#include <utils/guc.h>
#include <utils/plancache.h>
#include <utils/resowner.h>
}

namespace postbox {

Statement::~Statement() {
  if (plan_ != nullptr) SPI_freeplan(plan_);
}

Statement::Statement(Statement&& other) noexcept { *this = std::move(other); }

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(sql_, other.sql_);
  std::swap(types_, other.types_);
  std::swap(cursor_options_, other.cursor_options_);
  std::swap(plan_, other.plan_);
  std::swap(by_key_, other.by_key_);
  std::swap(planned_by_key_, other.planned_by_key_);
  return *this;
}

Statement Statement::ByKey(std::string sql, std::vector<Oid> types) {
  Statement statement(std::move(sql), std::move(types), CURSOR_OPT_GENERIC_PLAN);
  statement.by_key_ = true;
  return statement;
}

bool Statement::RunForInt64(const Datum* values, const char* nulls, int64* value) {
  const bool row = Run(values, nulls) > 0;
  if (row) {
    RequireColumnType(1, INT8OID);
    *value = Int64Column(0, 1);
  }
  FreeRows();
  return row;
}

// Inside Pg().
void Statement::Prepare() {
  SPIPlanPtr plan = SPI_prepare_cursor(sql_.c_str(), static_cast<int>(types_.size()), types_.data(),
                                       cursor_options_);
  if (plan == nullptr) elog(ERROR, "could not prepare: %s", SPI_result_code_string(SPI_result));
  SPI_keepplan(plan);
  plan_ = plan;
}

// Inside Pg(). The setting is that of the planner only: a trigger that the statement fires has its
// own.
void Statement::PlanByKey() {
  if (planned_by_key_ && SPI_plan_is_valid(plan_)) return;
  const int level = NewGUCNestLevel();
  set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                    false);
  CachedPlan* made = SPI_plan_get_cached_plan(plan_);
  if (made != nullptr) ReleaseCachedPlan(made, CurrentResourceOwner);
  AtEOXact_GUC(false, level);
  planned_by_key_ = true;
}

bool Statement::IsPlanned() const {
  return plan_ != nullptr && Pg([&] { return SPI_plan_is_valid(plan_); });
}

SPIPlanPtr Statement::Plan() {
  Pg([&] {
    const bool prepared = plan_ != nullptr;
    if (!prepared) Prepare();
    if (by_key_) {
      PlanByKey();
    } else if (prepared && !SPI_plan_is_valid(plan_)) {
      CachedPlan* made = SPI_plan_get_cached_plan(plan_);
      if (made != nullptr) ReleaseCachedPlan(made, CurrentResourceOwner);
    }
  });
  return plan_;
}

void Statement::RunReadOnly(const Datum* values, DestReceiver* receiver) {
  Pg([&] {
    if (plan_ == nullptr) Prepare();
    if (by_key_) PlanByKey();
    const int count = static_cast<int>(types_.size());
    ParamListInfo parameters = makeParamList(count);
    for (int i = 0; i < count; ++i) {
      parameters->params[i] = {values[i], false, PARAM_FLAG_CONST, types_[i]};
    }
    SPIExecuteOptions options{};
    options.params = parameters;
    options.read_only = true;
    options.dest = receiver;
    const int result = SPI_execute_plan_extended(plan_, &options);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
  });
}

uint64 Statement::Execute(const Datum* values, const char* nulls, bool read_only) {
  return Pg([&]() -> uint64 {
    if (plan_ == nullptr) Prepare();
    if (by_key_) PlanByKey();
    const int result = SPI_execute_plan(plan_, const_cast<Datum*>(values), nulls, read_only, 0);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
    return SPI_processed;
  });
}

}  // namespace postbox
