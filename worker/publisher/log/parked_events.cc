#include "worker/publisher/log/parked_events.h"

#include "worker/publisher/log/log_moment.h"

namespace postbox::publisher {

void ParkedEvents::Prepare(const LogOutboxSql& sql, const std::string& relation_name) {
  relation_name_ = relation_name;
  park_behind_ = Statement(sql.park_behind, {TEXTOID, INT8ARRAYOID});
  park_ = Statement(sql.park, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID});
  park_unreadable_ =
      Statement(sql.park_unreadable, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID});
  repair_ = Statement(sql.repair, {TEXTOID, TEXTARRAYOID});
  parked_keys_ = Statement(sql.parked_keys, {TEXTOID});
  due_keys_ = Statement(sql.due_keys, {TEXTOID, INT4OID, TEXTARRAYOID});
  parked_rows_ = Statement(sql.parked_rows, {TEXTOID, TEXTARRAYOID, INT4OID});
  unpark_ = Statement(sql.unpark, {TEXTOID, TEXTARRAYOID});
  park_again_ = Statement(sql.park_again, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID});
}

void ParkedEvents::Load() {
  const uint64 rows = parked_keys_.Run({TextValue(publication_.name)});
  CheckColumns(relation_name_, {TEXTOID});
  keys_.clear();
  for (uint64 row = 0; row < rows; ++row) keys_.insert(TextColumn(row, 1));
}

void ParkedEvents::Reset() {
  keys_.clear();
  outstanding_keys_.clear();
  published_.clear();
}

double ParkedEvents::BackoffSeconds(int attempts, bool may_fail) const {
  if (may_fail && attempts >= publication_.max_attempts) {
    return std::numeric_limits<double>::infinity();
  }
  const auto delay = pubsub::BackoffDelay(publication_.backoff, attempts, pubsub::JitterRandom());
  return std::chrono::duration<double>(delay).count();
}

void ParkedEvents::Park(const ClaimedEvent& event) {
  const bool rejected = event.status == pubsub::PublishStatus::kRejected;
  const double delay = BackoffSeconds(1, rejected);
  // It was never encoded.
  Statement& park = event.encoded.empty() ? park_unreadable_ : park_;
  const uint64 parked =
      park.Run({TextValue(publication_.name), Int64GetDatum(event.seq), Int32GetDatum(1),
                TextValue(event.error), Pg([&] { return Float8GetDatum(delay); })});
  const std::string id = parked > 0 ? TextColumn(0, 1) : "";
  keys_.insert(event.key);
  Pg([&] {
    ereport(LOG, (errmsg("publication \"%s\": event %s of key \"%s\" is parked: %s",
                         publication_.name.c_str(), id.c_str(), event.key.c_str(),
                         event.error.c_str())));
  });
}

void ParkedEvents::ParkBehind(const std::vector<std::int64_t>& seqs) {
  if (seqs.empty()) return;
  park_behind_.Run({TextValue(publication_.name), SeqArrayValue(seqs)});
}

void ParkedEvents::Claim(std::size_t limit, Events* events) {
  if (keys_.empty()) return;
  const Datum count = Int32GetDatum(static_cast<int32>(limit));
  const Datum publication = TextValue(publication_.name);
  uint64 rows = due_keys_.Run(
      {publication, count, TextArrayValue({outstanding_keys_.begin(), outstanding_keys_.end()})});
  if (rows == 0) return;
  CheckColumns(relation_name_, {TEXTOID});
  const std::vector<std::string> keys = TextColumns(rows, 1);
  const std::span<const StoredRow> views = ReadRows(keys, count);
  rows = views.size();

  constexpr int kAttempts = 11;
  constexpr int kDue = 12;
  std::unordered_set<std::string> begun;
  std::unordered_set<std::string> ended;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string key(views[row].event.aggregate_id);
    const int attempts = Int32Column(row, kAttempts);
    const bool due = BoolColumn(row, kDue);
    if (publication_.parked_blocks) {
      // A key's first row, and those that wait behind it and nothing else.
      if (ended.contains(key)) continue;
      if (begun.contains(key) && attempts > 0) {
        ended.insert(key);
        continue;
      }
      begun.insert(key);
    } else if (!due && attempts > 0) {
      continue;
    }
    EventPointer event = MakeEvent(views[row], topic_, ordering_);
    event->id = views[row].event.id;
    event->attempts = attempts;
    outstanding_keys_.insert(key);
    events->push_back(std::move(event));
  }
}

std::span<const StoredRow> ParkedEvents::ReadRows(const std::vector<std::string>& keys,
                                                  Datum count) {
  const auto read = [&] {
    const uint64 rows =
        parked_rows_.Run({TextValue(publication_.name), TextArrayValue(keys), count});
    CheckEventColumns(relation_name_, {INT4OID, BOOLOID});
    return ViewRows(rows);
  };
  const std::span<const StoredRow> views = read();
  std::vector<std::string> unreadable;
  for (const StoredRow& row : views) {
    if (row.problem != nullptr && !row.event.id.empty()) unreadable.emplace_back(row.event.id);
  }
  if (unreadable.empty()) return views;
  if (repair_.Run({TextValue(publication_.name), TextArrayValue(unreadable)}) > 0) {
    Pg([] { CommandCounterIncrement(); });
  }
  return read();
}

void ParkedEvents::Settle(const ClaimedEvent& event) {
  using pubsub::PublishStatus;
  outstanding_keys_.erase(event.key);
  if (event.status == PublishStatus::kPublished) {
    published_.push_back(event.id);
    return;
  }
  const bool rejected = event.status == PublishStatus::kRejected;
  if (event.leaving || (!rejected && event.status != PublishStatus::kUnknown)) return;
  const int attempts = event.attempts + 1;
  const double delay = BackoffSeconds(attempts, rejected);
  park_again_.Run({TextValue(publication_.name), TextValue(event.id), TextValue(event.error),
                   Pg([&] { return Float8GetDatum(delay); })});
  if (!std::isinf(delay)) return;
  Pg([&] {
    ereport(WARNING,
            (errmsg("publication \"%s\": event %s of key \"%s\" failed after %d attempts: %s",
                    publication_.name.c_str(), event.id.c_str(), event.key.c_str(), attempts,
                    event.error.c_str())));
  });
}

void ParkedEvents::DeletePublished() {
  if (published_.empty()) return;
  unpark_.Run({TextValue(publication_.name), TextArrayValue(published_)});
  published_.clear();
  Load();
}

}  // namespace postbox::publisher
