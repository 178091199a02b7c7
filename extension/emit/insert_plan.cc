#include "extension/emit/insert_plan.h"

extern "C" {
#include <access/sysattr.h>
#include <executor/executor.h>
#include <tcop/dest.h>
#include <utils/lsyscache.h>
}

namespace postbox {
// What SPI adds to the context of an error, too.
void InsertPlan::AddStatementToContext(void* sql) {
  errcontext("SQL statement \"%s\"", static_cast<const char*>(sql));
}

InsertPlan::InsertPlan(SPIPlanPtr statement)
    : source_(static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(statement)))),
      plan_(Pg([&] { return GetCachedPlan(source_, nullptr, nullptr, nullptr); })) {}

InsertPlan::~InsertPlan() { ReleaseCachedPlan(plan_, nullptr); }

bool InsertPlan::IsSingle() const {
  return list_length(plan_->stmt_list) == 1 &&
         linitial_node(PlannedStmt, plan_->stmt_list)->commandType == CMD_INSERT;
}

bool InsertPlan::IsForEveryone(Oid relation) const {
  // Row security makes a plan depend on the role.
  if (!IsSingle() || plan_->dependsOnRole || TransactionIdIsValid(plan_->saved_xmin)) return false;
  ListCell* cell;
  foreach (cell, linitial_node(PlannedStmt, plan_->stmt_list)->rtable) {
    const auto* entry = lfirst_node(RangeTblEntry, cell);
    if (entry->rtekind == RTE_RELATION && entry->relid != relation) return false;
  }
  return true;
}

void InsertPlan::NeedNoRightOn(Oid relation, std::initializer_list<const char*> columns) {
  if (!IsSingle()) return;
  Pg([&] {
    Bitmapset* inserted = POSTBOX_INSERTED_COLUMNS(linitial_node(PlannedStmt, plan_->stmt_list));
    for (const char* column : columns) {
      // In place, without the memory that a copy would need: the plan is not shared.
      bms_del_member(inserted, get_attnum(relation, column) - FirstLowInvalidHeapAttributeNumber);
    }
  });
}

bool InsertPlan::IsValid() const {
  return source_->is_valid && source_->gplan == plan_ && plan_->is_valid;
}

void InsertPlan::CheckRights() const {
  Pg([&] { POSTBOX_CHECK_RIGHTS(linitial_node(PlannedStmt, plan_->stmt_list)); });
}

uint64 InsertPlan::Run(const Datum* values) const {
  return As([&] {
    ParamListInfo parameters = makeParamList(source_->num_params);
    for (int i = 0; i < source_->num_params; ++i) {
      parameters->params[i] = {values[i], false, PARAM_FLAG_CONST, source_->param_types[i]};
    }
    // It sees what came before it in the transaction, and what comes after sees it.
    CommandCounterIncrement();
    PushActiveSnapshot(GetTransactionSnapshot());
    QueryDesc* query = CreateQueryDesc(linitial_node(PlannedStmt, plan_->stmt_list),
                                       source_->query_string, GetActiveSnapshot(), InvalidSnapshot,
                                       None_Receiver, parameters, nullptr, 0);
    ExecutorStart(query, 0);
    POSTBOX_RUN_QUERY(query);
    const uint64 rows = query->estate->es_processed;
    ExecutorFinish(query);
    ExecutorEnd(query);
    FreeQueryDesc(query);
    PopActiveSnapshot();
    CommandCounterIncrement();
    return rows;
  });
}

}  // namespace postbox
