#include "worker/publisher/source/log/foreign_rows.h"

#include "extension/trust/act_as.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/step_limit.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kMostTime = std::chrono::hours(1);
// How often a lane looks, at least.
constexpr milliseconds kLookInterval = std::chrono::seconds(1);

// One plan of each serves all logs of the worker.
struct CommonStatements {
  Statement lanes{
      "SELECT 1 FROM postbox.lane l, postbox.publication p "
      "WHERE p.name OPERATOR(pg_catalog.=) l.publication "
      "AND p.outbox OPERATOR(pg_catalog.=) $1 "
      "AND l.system_identifier OPERATOR(pg_catalog.<>) $2::numeric LIMIT 1",
      {OIDOID, TEXTOID}};
  Statement unsettled{"SELECT postbox.has_unsettled($1, $1)", {REGCLASSOID}};
  Statement settle{"SELECT postbox.settle_foreign_events($1::pg_catalog.regclass)", {OIDOID}};

  // They are never destroyed: at exit the server's memory goes without us.
  static CommonStatements& Of() {
    static CommonStatements& statements = *new CommonStatements;
    return statements;
  }
};

}  // namespace

bool ForeignRows::LanesAreForeign() {
  const std::string identifier = std::to_string(GetSystemIdentifier());
  return CommonStatements::Of().lanes.Run(
             {ObjectIdGetDatum(publication_.outbox), TextValue(identifier)}) > 0;
}

bool ForeignRows::Any(Oid owner_role) {
  const Clock::time_point begin = Clock::now();
  if (begin < shared_.look_at) return false;
  {
    const ActAs owner(owner_role);
    look_.Run({TextValue(publication_.name)});
    bool any = BoolColumn(0, 1);
    shared_.settled = Int64Column(0, 2);
    if (any) {
      CommonStatements::Of().unsettled.Run({ObjectIdGetDatum(publication_.outbox)});
      any = BoolColumn(0, 1);
    }
    if (any) return true;
  }
  // Where many rows had to be passed, it may cost a twentieth of the time.
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  shared_.look_at = Clock::now() + std::max(kLookInterval, took * 20);
  return false;
}

int64 ForeignRows::Settle() {
  StepLimit::Extend(shared_.step_time);
  shared_.step_time = std::min(shared_.step_time * 2, kMostTime);
  CommonStatements::Of().settle.Run({ObjectIdGetDatum(publication_.outbox)});
  const int64 settled = Int64Column(0, 1);
  Failpoint("during_rebase");
  shared_.step_time = Shared::kFirstTime;
  shared_.look_at = {};
  if (settled == 0) return 0;
  Pg([&] {
    ereport(LOG, (errmsg("the outbox of publication \"%s\" has events of another cluster; %lld "
                         "that were not published there are published here",
                         publication_.name.c_str(), static_cast<long long>(settled))));
  });
  return settled;
}

bool ForeignRows::SettledSince() {
  return std::exchange(settled_, shared_.settled) != shared_.settled;
}

}  // namespace postbox::publisher
