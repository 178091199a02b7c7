#include "worker/cli/console/session_rights.h"

namespace postbox::cli {
namespace {

constexpr char kRights[] =
    "SELECT json_build_object('act', postbox.may_record_action(), "
    "'operate', postbox.is_operator(), 'metrics', " POSTBOX_SEES_METRICS
    ", 'workers', " POSTBOX_SEES_WORKERS ", 'provision', " POSTBOX_SEES_PROVISION ")::text";

}  // namespace

Answer ReadRights(Session* session) { return Give(session->Read(kRights, {})); }

std::optional<bool> Holds(Session* session, const char* condition, Answer* refusal) {
  const puller::QueryResult holds = session->Read(std::string("SELECT ") + condition, {});
  if (holds.ok()) return holds.text(0, 0) == "t";
  *refusal = Refuse(holds);
  return std::nullopt;
}

Answer RefuseRole(const char* what, const char* remedy) {
  return Refuse(403, std::string("permission denied for ") + what + ": " + remedy, "42501");
}

}  // namespace postbox::cli
