// What the workers of a database have to publish: postbox.publication, with what its outbox is.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_H_

#include "extension/base/statement.h"
#include "extension/rules/backoff.h"

namespace postbox::publisher {

struct Publication {
  std::string name;
  Oid outbox = InvalidOid;
  std::string kind;  // of the outbox: 'log' or 'table'
  int lanes = 1;
  int wanted_lanes = 0;      // as soon as the keys can be divided again; 0: as it has
  std::string filter_since;  // the transaction that last changed aggregate_types, an xid8; or 0
  Oid parked = InvalidOid;   // of a log: its table of parked events
  std::string topic;         // as given: an id or a full name
  std::vector<std::string> aggregate_types;
  bool filtered = false;   // aggregate_types is not NULL
  std::string credential;  // with which it publishes; empty: that of the server's environment
  std::string ordering;    // 'key', 'bucket:N' or 'none'
  int max_attempts = 0;
  pubsub::BackoffPolicy backoff{};
  bool parked_blocks = true;  // on_failure = 'park_key'
  // One that was dropped and created again has the same name, and nothing of the other one's.
  TimestampTz created_at = 0;
  TimestampTz paused_until = 0;  // 0: it is not paused

  bool is_log() const { return kind == "log"; }
  bool IsPaused() const { return paused_until != 0; }
  // Whether it is the other one, as it was made or altered since.
  bool IsAltered(const Publication& other) const {
    return name == other.name && outbox == other.outbox && created_at == other.created_at;
  }
  bool operator==(const Publication&) const = default;
};

// All publications, in the order of their names. In a transaction, with the rights of the worker.
// Throws object_not_in_prerequisite_state if the SQL objects of the extension are older than this
// library: after new files were installed, and before ALTER EXTENSION postbox UPDATE.
// `copies` says whether there are any that are left out, since a database of this cluster has them
// that the current one was copied from. That is logged once.
std::vector<Publication> LoadPublications(bool* copies);

// The sequence of seq of a log outbox, whatever the column is called now; InvalidOid if there is
// none.
Oid LogSequence(Oid outbox);

// A statement over the events that a publication takes: if the publication is filtered, the
// aggregate types are the parameter behind those given.
class FilteredStatement {
 public:
  FilteredStatement() = default;
  FilteredStatement(const Publication& publication, std::string sql, std::vector<Oid> types);

  // As Statement has them.
  uint64 Run(std::initializer_list<Datum> values);
  uint64 RunReadOnly(std::initializer_list<Datum> values);
  void RunReadOnly(std::initializer_list<Datum> values, DestReceiver* receiver);

 private:
  std::vector<Datum> WithTypes(std::initializer_list<Datum> values) const;

  const Publication* publication_ = nullptr;  // lives as long
  Statement statement_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_H_
