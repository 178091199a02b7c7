// See publication.h.
#include "worker/publisher/store/publication.h"

#include "extension/base/library_version.h"
#include "extension/base/spi.h"

extern "C" {
#include <access/xlog.h>
#include <miscadmin.h>
}

namespace postbox::publisher {

namespace {

// As postbox.this_database() says it.
std::string ThisDatabase() {
  return std::to_string(GetSystemIdentifier()) + "/" + std::to_string(MyDatabaseId);
}

// What has come with the whole database, from another cluster or from a database that is gone,
// belongs here from now on. Several workers may find it.
void TakeHome() {
  Parameters here;
  here.AddText(ThisDatabase());
  Run("UPDATE postbox.publication SET home = $1 WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT p.name FROM postbox.publication p WHERE p.home OPERATOR(pg_catalog.<>) $1 "
      "AND postbox.copied_from(p.home) IS NULL FOR UPDATE SKIP LOCKED))",
      here);
}

void LogCopy(const std::string& name, const std::string& original) {
  static std::set<std::string>& logged = *new std::set<std::string>;
  if (!logged.insert(name).second) return;
  Pg([&] {
    ereport(
        WARNING,
        (errmsg("publication \"%s\" is not published: it was copied from database \"%s\"",
                name.c_str(), original.c_str()),
         errhint("Drop it, or run postbox.claim_publication if it is to be published here, too.")));
  });
}

}  // namespace

std::vector<Publication> LoadPublications(bool* copies) {
  RequireUpdatedExtension();
  TakeHome();
  *copies = false;
  Parameters here;
  here.AddText(ThisDatabase());
  const uint64 rows =
      Run("SELECT p.name, p.outbox::pg_catalog.oid::bigint, o.kind, p.topic, p.aggregate_types, "
          "p.ordering, p.max_attempts, "
          "(extract(epoch FROM p.base_backoff) OPERATOR(pg_catalog.*) 1000)::bigint, "
          "(extract(epoch FROM p.max_backoff) OPERATOR(pg_catalog.*) 1000)::bigint, "
          "p.on_failure OPERATOR(pg_catalog.=) 'park_key', p.lanes, "
          "coalesce(o.parked::pg_catalog.oid::bigint, 0), p.created_at, "
          "coalesce(p.wanted_lanes, 0), "
          "p.filter_changes[pg_catalog.cardinality(p.filter_changes)]::pg_catalog.text, "
          "CASE WHEN p.home OPERATOR(pg_catalog.<>) $1 THEN postbox.copied_from(p.home) "
          "END::pg_catalog.text, p.credential, "
          "CASE WHEN p.paused_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() "
          "THEN p.paused_until END "
          "FROM postbox.publication p, postbox.outbox o "
          "WHERE o.relation OPERATOR(pg_catalog.=) p.outbox ORDER BY p.name",
          here);
  std::vector<Publication> publications;
  for (uint64 row = 0; row < rows; ++row) {
    Publication publication;
    publication.name = TextColumn(row, 1);
    if (!IsNull(row, 16)) {
      *copies = true;
      LogCopy(publication.name, TextColumn(row, 16));
      continue;
    }
    publication.outbox = static_cast<Oid>(Int64Column(row, 2));
    publication.kind = TextColumn(row, 3);
    publication.topic = TextColumn(row, 4);
    publication.filtered = !IsNull(row, 5);
    publication.aggregate_types = TextArrayColumn(row, 5);
    publication.ordering = TextColumn(row, 6);
    publication.max_attempts = Int32Column(row, 7);
    publication.backoff = {std::chrono::milliseconds(Int64Column(row, 8)), 2.0,
                           std::chrono::milliseconds(Int64Column(row, 9))};
    publication.parked_blocks = BoolColumn(row, 10);
    publication.lanes = Int32Column(row, 11);
    publication.parked = static_cast<Oid>(Int64Column(row, 12));
    publication.created_at = Int64Column(row, 13);
    publication.wanted_lanes = Int32Column(row, 14);
    publication.filter_since = TextColumn(row, 15);
    publication.credential = TextColumn(row, 17);
    publication.paused_until = Int64Column(row, 18);
    publications.push_back(std::move(publication));
  }
  return publications;
}

Oid LogSequence(Oid outbox) {
  Parameters parameters;
  parameters.AddOid(OIDOID, outbox);
  const uint64 rows =
      Run("SELECT c.oid::bigint FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class c "
          "ON c.oid OPERATOR(pg_catalog.=) d.objid "
          "WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass "
          "AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass "
          "AND d.refobjid OPERATOR(pg_catalog.=) $1 AND d.refobjsubid OPERATOR(pg_catalog.>) 0 "
          "AND c.relkind OPERATOR(pg_catalog.=) 'S' ORDER BY d.refobjsubid, c.oid LIMIT 1",
          parameters);
  return rows == 0 ? InvalidOid : static_cast<Oid>(Int64Column(0, 1));
}

FilteredStatement::FilteredStatement(const Publication& publication, std::string sql,
                                     std::vector<Oid> types)
    : publication_(&publication) {
  if (publication.filtered) types.push_back(TEXTARRAYOID);
  statement_ = Statement(std::move(sql), std::move(types));
}

uint64 FilteredStatement::Run(std::initializer_list<Datum> values) {
  return statement_.Run(WithTypes(values).data());
}

uint64 FilteredStatement::RunReadOnly(std::initializer_list<Datum> values) {
  return statement_.RunReadOnly(WithTypes(values).data());
}

void FilteredStatement::RunReadOnly(std::initializer_list<Datum> values, DestReceiver* receiver) {
  statement_.RunReadOnly(WithTypes(values).data(), receiver);
}

std::vector<Datum> FilteredStatement::WithTypes(std::initializer_list<Datum> values) const {
  std::vector<Datum> all(values);
  if (publication_->filtered) all.push_back(TextArrayValue(publication_->aggregate_types));
  return all;
}

}  // namespace postbox::publisher
