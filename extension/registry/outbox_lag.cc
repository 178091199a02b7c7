#include "extension/registry/outbox_lag.h"

#include "extension/base/relation.h"
#include "extension/base/statement.h"
#include "extension/trust/act_as.h"

namespace postbox {

std::optional<OutboxLag> LagOf(Oid outbox) {
  static Statement& find = *new Statement(
      "SELECT p.name, (extract(epoch FROM b.oldest_ready) * 1000000)::bigint, "
      "coalesce(b.broken, false) FROM postbox.publication p "
      "CROSS JOIN LATERAL postbox.publication_backlog(p.name) b WHERE p.outbox = $1 "
      "ORDER BY 3 DESC, 2 DESC NULLS LAST LIMIT 1",
      {REGCLASSOID});
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const Oid owner = RelationOwner(outbox);
  const ActAs as_owner(owner, TrustIn(owner));
  if (find.Run({ObjectIdGetDatum(outbox)}) == 0) return std::nullopt;
  OutboxLag lag{.publication = TextColumn(0, 1), .microseconds = {}, .is_broken = BoolColumn(0, 3)};
  if (!IsNull(0, 2)) lag.microseconds = Int64Column(0, 2);
  return lag;
}

}  // namespace postbox
