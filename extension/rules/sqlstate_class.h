// What an SQLSTATE means for an event that was being applied.
//
//   transient   The event is not at fault: connection (08), rolled back by a conflict (40),
//               resources (53), lock not available (55P03), operator or shutdown (57), system error
//               (58), and read-only transaction (25006), because after a failover the connection
//               may lead to a standby. An empty SQLSTATE means that the connection broke.
//               Of these, 57PB1 is Postbox's own: a projection or handler that takes the event is
//               paused (extension/apply/routes.h).
//   permanent   Everything else, for example data (22), constraint (23), syntax, rights and names
//               in a handler (42), raised by a handler (P0001). If the projections and handlers
//               lack a right to the inbox itself, a call without events fails, too
//               (extension/trust/rights.h).
#ifndef POSTBOX_EXTENSION_RULES_SQLSTATE_CLASS_H_
#define POSTBOX_EXTENSION_RULES_SQLSTATE_CLASS_H_

#include <string_view>

namespace postbox {

constexpr bool IsTransientSqlstate(std::string_view sqlstate) {
  if (sqlstate.size() != 5) return true;
  std::string_view error_class = sqlstate.substr(0, 2);
  return error_class == "08" || error_class == "40" || error_class == "53" || error_class == "57" ||
         error_class == "58" || sqlstate == "55P03" || sqlstate == "25006";
}

// A projection or handler that takes the event is paused. Events of other types are not concerned.
inline constexpr std::string_view kPauseSqlstate = "57PB1";

// A deadlock, a serialization failure, a lock that is not available, or a lack of memory or disk.
// One event may be its cause, or a transaction that is too large, or another session.
constexpr bool IsContentionSqlstate(std::string_view sqlstate) {
  if (sqlstate.size() != 5) return false;
  std::string_view error_class = sqlstate.substr(0, 2);
  return error_class == "40" || error_class == "53" || sqlstate == "55P03";
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_SQLSTATE_CLASS_H_
