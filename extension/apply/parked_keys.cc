#include "extension/apply/parked_keys.h"

#include "extension/base/statement.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

// The longest ordering key of Pub/Sub. An entry of a btree may have 2,704 bytes.
constexpr size_t kLongestKey = 1024;

// Of subscriptions without on_error => 'park_key', or if there is none.
constexpr RetryPolicy kDefaultPolicy{{std::chrono::seconds(10), 2.0, std::chrono::minutes(10)}, 20};

// Empty if it is NULL. It lives as long as the event.
std::string_view KeyOf(const InboxEvent& event) {
  if (event.IsNull(EventField::kAggregateId)) return {};
  return Pg([&]() -> std::string_view {
    const text* key = DatumGetTextPP(event.Value(EventField::kAggregateId));
    return {VARDATA_ANY(key), static_cast<size_t>(VARSIZE_ANY_EXHDR(key))};
  });
}

// As SetRetry has it, for a statement that computes now() + $n * interval '1 ms'.
Datum DelayValue(const std::optional<std::chrono::milliseconds>& delay) {
  return Float8GetDatum(delay ? static_cast<double>(delay->count())
                              : std::numeric_limits<double>::infinity());
}

// SQL has no infinite interval before PostgreSQL 17.
#define POSTBOX_RETRY_AT(n)                                                  \
  "CASE WHEN " n " = 'infinity' THEN 'infinity' ELSE clock_timestamp() + " n \
  " * interval '1 ms' END"

bool LockShared(Oid inbox, Datum aggregate_id) {
  static auto& lock = *new Statement(Statement::ByKey(
      "SELECT FROM postbox.parked_key k WHERE k.inbox = $1 AND k.aggregate_id = $2 FOR KEY SHARE",
      {REGCLASSOID, TEXTOID}));
  return lock.Run({ObjectIdGetDatum(inbox), aggregate_id}) > 0;
}

}  // namespace

std::string WhyNotParked(const InboxEvent& event) {
  if (event.event_id.empty()) return "it has no event_id";
  const std::string_view key = KeyOf(event);
  if (key.empty()) return "it has no aggregate_id";
  if (key.size() > kLongestKey) {
    return "its aggregate_id has more than " + std::to_string(kLongestKey) + " bytes";
  }
  return "";
}

std::vector<bool> FindParked(const Inbox& inbox, const std::vector<InboxEvent>& events,
                             const std::vector<bool>& fresh) {
  std::vector<std::string_view> keys(events.size());
  std::set<std::string_view> different;
  for (size_t i = 0; i < events.size(); ++i) {
    if (!fresh[i]) continue;
    keys[i] = KeyOf(events[i]);
    if (!keys[i].empty() && keys[i].size() <= kLongestKey) different.insert(keys[i]);
  }
  std::vector<bool> found(events.size());
  if (different.empty()) return found;

  // Never destroyed: the server is no longer usable when destructors of static objects run.
  static auto& look = *new Statement(
      Statement::ByKey("SELECT k.aggregate_id FROM postbox.parked_key k "
                       "WHERE k.inbox = $1 AND k.aggregate_id = ANY ($2) FOR KEY SHARE",
                       {REGCLASSOID, TEXTARRAYOID}));
  const Datum array = TextArrayValue(std::vector<std::string>(different.begin(), different.end()));
  const Registrar registrar("parked_key");
  const uint64 rows = look.Run({ObjectIdGetDatum(inbox.relation()), array});
  if (rows == 0) return found;
  const std::vector<std::string> parked = TextColumns(rows, 1);
  FreeRows();
  const std::set<std::string_view> names(parked.begin(), parked.end());
  for (size_t i = 0; i < events.size(); ++i) found[i] = fresh[i] && names.contains(keys[i]);
  return found;
}

void ParkKey(const Inbox& inbox, const InboxEvent& event) {
  static auto& insert = *new Statement(
      "INSERT INTO postbox.parked_key (inbox, aggregate_id, next_retry_at) "
      "VALUES ($1, $2, " POSTBOX_RETRY_AT("$3") ") ON CONFLICT DO NOTHING",
      {REGCLASSOID, TEXTOID, FLOAT8OID});
  const Oid relation = inbox.relation();
  const Datum key = event.Value(EventField::kAggregateId);
  const Registrar registrar("parked_key");
  const RetryPolicy policy = RetryPolicyOf(relation);
  std::optional<std::chrono::milliseconds> delay;
  if (policy.max_attempts > 0) delay = policy.DelayBefore(1);
  while (insert.Run({ObjectIdGetDatum(relation), key, DelayValue(delay)}) == 0) {
    if (LockShared(relation, key)) return;
    Pg([] { CHECK_FOR_INTERRUPTS(); });
  }
}

RetryPolicy RetryPolicyOf(Oid inbox) {
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
  const Registrar registrar("subscription");
  if (Run("SELECT (extract(epoch FROM s.parked_min_backoff) * 1000)::bigint, "
          "(extract(epoch FROM s.parked_max_backoff) * 1000)::bigint, s.parked_max_attempts "
          "FROM postbox.subscription s WHERE s.inbox = $1 AND s.on_error = 'park_key' "
          "ORDER BY s.name LIMIT 1",
          key) == 0) {
    return kDefaultPolicy;
  }
  return {{std::chrono::milliseconds(Int64Column(0, 1)), 2.0,
           std::chrono::milliseconds(Int64Column(0, 2))},
          Int32Column(0, 3)};
}

std::optional<ParkedKey> LockParkedKey(Oid inbox, Datum aggregate_id, Wait wait) {
  Parameters key;
  key.AddOid(REGCLASSOID, inbox).Add(TEXTOID, aggregate_id);
  const Registrar registrar("parked_key");
  if (Run(std::string("SELECT k.retries FROM postbox.parked_key k WHERE k.inbox = $1 "
                      "AND k.aggregate_id = $2 FOR NO KEY UPDATE") +
              (wait == Wait::kWait ? "" : " SKIP LOCKED"),
          key) == 0) {
    return std::nullopt;
  }
  return ParkedKey{aggregate_id, Int32Column(0, 1)};
}

std::optional<std::string> ClaimParkedKey(Oid inbox) {
  static auto& claim = *new Statement(
      "SELECT k.aggregate_id, k.retries FROM postbox.parked_key k WHERE k.inbox = $1 "
      "AND k.next_retry_at <= now() ORDER BY k.next_retry_at LIMIT 1 "
      "FOR NO KEY UPDATE SKIP LOCKED",
      {REGCLASSOID});
  const Registrar registrar("parked_key");
  const RetryPolicy policy = RetryPolicyOf(inbox);
  if (claim.Run({ObjectIdGetDatum(inbox)}) == 0) return std::nullopt;
  const std::string name = TextColumn(0, 1);
  const ParkedKey key{TextValue(name), Int32Column(0, 2)};
  // Its last retries have not ended: a time-out, or a connection that was lost.
  if (key.retries >= std::max(policy.max_attempts, 1)) {
    SetRetry(inbox, key, key.retries, std::nullopt);
    return std::nullopt;
  }
  SetRetry(inbox, key, key.retries + 1, policy.DelayBefore(key.retries + 1));
  return name;
}

void SetRetry(Oid inbox, const ParkedKey& key, int retries,
              std::optional<std::chrono::milliseconds> delay) {
  static auto& update = *new Statement(Statement::ByKey(
      "UPDATE postbox.parked_key SET retries = $3, next_retry_at = " POSTBOX_RETRY_AT(
          "$4") " WHERE inbox = $1 AND aggregate_id = $2",
      {REGCLASSOID, TEXTOID, INT4OID, FLOAT8OID}));
  const Registrar registrar("parked_key");
  update.Run(
      {ObjectIdGetDatum(inbox), key.aggregate_id, Int32GetDatum(retries), DelayValue(delay)});
}

bool RemoveParkedKey(Oid inbox, Datum aggregate_id) {
  Parameters key;
  key.AddOid(REGCLASSOID, inbox).Add(TEXTOID, aggregate_id);
  const Registrar registrar("parked_key");
  if (Run("SELECT FROM postbox.parked_key k WHERE k.inbox = $1 AND k.aggregate_id = $2 "
          "FOR UPDATE SKIP LOCKED",
          key) == 0) {
    return false;
  }
  // Another statement, with a new snapshot.
  return Run("DELETE FROM postbox.parked_key k WHERE k.inbox = $1 AND k.aggregate_id = $2 "
             "AND NOT EXISTS (SELECT FROM postbox.dead_letter d WHERE d.inbox = $1 "
             "AND d.aggregate_id = $2 AND d.parked)",
             key) > 0;
}

}  // namespace postbox
