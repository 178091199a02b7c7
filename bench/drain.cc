// postbox_bench.so: the database side of publishing by itself, for `bench/run drain`, `backlog`,
// `wal` and `held-transaction`. Never installed.
//
// bench_drain(publication, mode) starts a background worker and returns its pid. The worker
// measures one run and writes a row into bench.result, or an error into the server's log, and ends:
//
//   'drain'   what the publisher worker does to the database, with its own classes and settings and
//             a publisher that succeeds at once: claim, settle, checkpoint, until nothing is left
//   'flight'  the same, but some claims have no result yet when the next one is made
//   'select'  the measure for it: the same columns of the same rows of a log outbox in chunks of
//             the same size, each column looked at, and nothing done with them
//   'loop'    the measure for a `table` outbox: what services write by hand, on bench.loop instead
//             of the publication's outbox. A batch is locked with SKIP LOCKED, leased and
//             committed; each column is looked at; the batch is marked as published and committed
//
// The row also holds what was used, other than time (bench/usage.h).
//
// The first chunk is not counted: it makes the plans and fills the caches of a new process. No
// worker may claim meanwhile (postbox.publishers = 0).
#include "bench/usage.h"

#include <deque>

#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "extension/trust/worker_session.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/transaction.h"
#include "worker/publisher/make_sources.h"
#include "worker/publisher/store/publication_state.h"

extern "C" {
#include <postmaster/bgworker.h>

PG_MODULE_MAGIC;
PGDLLEXPORT Datum bench_drain(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(bench_drain);
PGDLLEXPORT void postbox_bench_main(Datum unused);
}

namespace postbox::publisher {

namespace {

using Clock = std::chrono::steady_clock;

// What the worker is told, in bgw_extra.
struct Order {
  Oid database;
  char mode[16];
  char publication[NAMEDATALEN];
};
static_assert(sizeof(Order) <= BGW_EXTRALEN);

// A value of /proc/self/status, in kB.
int64 ProcessStatus(std::string_view name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  int64 value = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const std::string_view text(line);
    if (text.starts_with(name)) value = std::atoll(line + name.size() + 1);
  }
  std::fclose(file);
  return value;
}

// Counts what is done, and looks at the memory every now and then.
class Measure {
 public:
  void Add(std::size_t events, std::size_t bytes) {
    ++chunks_;
    if (chunks_ == 1) {
      bench::BeginUsage();
      begin_ = Clock::now();
    } else {
      events_ += events;
    }
    all_events_ += events;
    bytes_ += bytes;
    end_ = Clock::now();
    if (end_ < next_look_) return;
    next_look_ = end_ + std::chrono::milliseconds(50);
    Look();
  }

  void Store(const Order& order) {
    const bench::Usage usage = bench::EndUsage();
    Look();
    const double seconds = std::chrono::duration<double>(end_ - begin_).count();
    InTransaction("postbox bench: storing the result", [&] {
      Statement insert(
          "INSERT INTO bench.result (publication, mode, events, measured_events, seconds, chunks, "
          "bytes, private_kb, peak_kb, buffers, own_wal) "
          "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
          {TEXTOID, TEXTOID, INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
           INT8OID, INT8OID});
      insert.Run({TextValue(order.publication), TextValue(order.mode), Value(all_events_),
                  Value(events_), Pg([&] { return Float8GetDatum(seconds); }), Value(chunks_),
                  Value(bytes_), Value(private_kb_), Value(ProcessStatus("VmHWM:")),
                  Value(usage.buffers), Value(usage.wal)});
    });
  }

 private:
  static Datum Value(int64 number) { return Int64GetDatum(number); }

  // Without the pages of shared_buffers, which belong to the server.
  void Look() {
    private_kb_ = std::max(private_kb_, ProcessStatus("RssAnon:") + ProcessStatus("RssFile:"));
  }

  int64 chunks_ = 0;
  int64 events_ = 0;  // without the first chunk
  int64 all_events_ = 0;
  int64 bytes_ = 0;
  int64 private_kb_ = 0;
  Clock::time_point begin_, end_, next_look_;
};

// So many claims have no result when the next one is made, as far from Pub/Sub.
constexpr std::size_t kClaimsInFlight = 4;

void Drain(const Publication& publication, const std::string& lock_token, std::size_t in_flight,
           Measure* measure) {
  const std::string topic = "projects/postbox-bench/topics/" + publication.topic;
  const auto batch = static_cast<std::size_t>(publication.is_log() ? settings().read_chunk_size
                                                                   : settings().claim_batch_size);
  const ClaimLimits limits{
      .events = batch, .bytes = static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024};

  for (const auto& source : MakeSources(publication, topic, lock_token)) {
    const auto maintain = [&](bool leaving) {
      if (!leaving && source->MaintainIn().count() > 0) return;
      Transaction transaction("postbox bench: maintaining an outbox");
      transaction.Run([&] { source->Maintain(leaving, &transaction); });
    };
    std::deque<Events> claims;
    for (;;) {
      Pg([] { CHECK_FOR_INTERRUPTS(); });
      ClaimResult claim;
      Transaction claiming("postbox bench: claiming events");
      claiming.Run([&] {
        claiming.Begin();
        ReadSuspension(publication.name);
        claim = source->Claim(limits, &claiming);
      });
      if (claim.events.empty() && !claim.more && claims.empty()) break;
      std::size_t bytes = 0;
      for (const EventPointer& event : claim.events) {
        bytes += event->bytes();
        event->status = pubsub::PublishStatus::kPublished;
      }
      const std::size_t events = claim.events.size();
      if (events > 0) claims.push_back(std::move(claim.events));
      if (claims.size() > in_flight || (events == 0 && !claims.empty())) {
        Transaction settling("postbox bench: storing the results", Durability::kSoon);
        settling.Run([&] { source->Settle(claims.front(), &settling); });
        claims.pop_front();
      }
      maintain(false);
      measure->Add(events, bytes);
    }
    maintain(true);
  }
}

// The bytes of the columns of SPI_tuptable. Each of them is looked at.
std::size_t LookAt(uint64 rows) {
  const TupleDesc description = SPI_tuptable->tupdesc;
  std::size_t bytes = 0;
  Pg([&] {
    for (uint64 row = 0; row < rows; ++row) {
      for (int column = 1; column <= description->natts; ++column) {
        bool null = false;
        const Datum value = SPI_getbinval(SPI_tuptable->vals[row], description, column, &null);
        if (!null && TupleDescAttr(description, column - 1)->attlen == -1) {
          bytes += VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(value));
        } else {
          bytes += value != 0 ? 1 : 0;
        }
      }
    }
  });
  return bytes;
}

void Select(const Publication& publication, Measure* measure) {
  const int chunk = settings().read_chunk_size;
  int64 after = 0;
  Statement select;
  for (uint64 rows = 1; rows > 0;) {
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    std::size_t bytes = 0;
    InTransaction("postbox bench: selecting", [&] {
      if (after == 0) {
        select = Statement(
            "SELECT seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, "
            "payload, attributes, occurred_at FROM " +
                RelationName(publication.outbox) +
                " WHERE origin = postbox.cluster_origin() AND seq > $1 ORDER BY seq LIMIT $2",
            std::vector<Oid>{INT8OID, INT4OID});
      }
      rows = select.RunReadOnly({Int64GetDatum(after), Int32GetDatum(chunk)});
      bytes = LookAt(rows);
      if (rows > 0) after = Int64Column(rows - 1, 1);
    });
    if (rows > 0) measure->Add(rows, bytes);
  }
}

void Loop(Measure* measure) {
  Statement claim(
      "WITH picked AS (SELECT id FROM bench.loop WHERE published_at IS NULL AND "
      "(next_retry_at IS NULL OR next_retry_at <= now()) AND "
      "(locked_at IS NULL OR locked_at < now() - interval '1 minute') "
      "ORDER BY occurred_at LIMIT $1 FOR UPDATE SKIP LOCKED) "
      "UPDATE bench.loop o SET lock_token = $2, locked_at = now() FROM picked "
      "WHERE o.id = picked.id RETURNING o.id::text, o.*",
      {INT4OID, TEXTOID});
  Statement mark(
      "UPDATE bench.loop SET published_at = now(), lock_token = NULL, locked_at = NULL "
      "WHERE id = ANY ($1::uuid[]) AND lock_token = $2",
      {TEXTARRAYOID, TEXTOID});
  const std::string token = std::to_string(MyProcPid);
  for (;;) {
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    std::vector<std::string> ids;
    std::size_t bytes = 0;
    InTransaction("postbox bench: claiming", [&] {
      const uint64 rows = claim.Run({Int32GetDatum(settings().claim_batch_size), TextValue(token)});
      bytes = LookAt(rows);
      for (uint64 row = 0; row < rows; ++row) ids.push_back(TextColumn(row, 1));
    });
    if (ids.empty()) return;
    InTransaction("postbox bench: marking", [&] {
      mark.Run({TextArrayValue(ids), TextValue(token)});
    });
    measure->Add(ids.size(), bytes);
  }
}

void Run(const Order& order) {
  std::optional<Publication> publication;
  InTransaction("postbox bench: reading publications", [&] {
    bool copies = false;
    for (Publication& each : LoadPublications(&copies)) {
      if (each.name == order.publication) publication = std::move(each);
    }
  });
  if (!publication) Throw(ERRCODE_UNDEFINED_OBJECT, "there is no such publication");
  Measure measure;
  if (std::string_view(order.mode) == "select") {
    Select(*publication, &measure);
  } else if (std::string_view(order.mode) == "loop") {
    Loop(&measure);
  } else {
    const bool flight = std::string_view(order.mode) == "flight";
    Drain(*publication, "bench-" + std::to_string(MyProcPid), flight ? kClaimsInFlight : 0,
          &measure);
  }
  measure.Store(order);
}

}  // namespace

}  // namespace postbox::publisher

void postbox_bench_main(Datum /*unused*/) {
  using namespace postbox::publisher;
  Order order;
  std::memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof order);
  BackgroundWorkerUnblockSignals();
  postbox::AttachSharedState();
  BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0);
  FindSettings();
  postbox::PinWorkerSettings();
  postbox::Guarded([&order] { Run(order); });
  proc_exit(0);
}

Datum bench_drain(PG_FUNCTION_ARGS) {
  postbox::publisher::Order order{};
  order.database = MyDatabaseId;
  strlcpy(order.publication, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof order.publication);
  strlcpy(order.mode, text_to_cstring(PG_GETARG_TEXT_PP(1)), sizeof order.mode);

  BackgroundWorker worker{};
  worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  worker.bgw_start_time = BgWorkerStart_ConsistentState;
  worker.bgw_restart_time = BGW_NEVER_RESTART;
  worker.bgw_notify_pid = MyProcPid;
  strlcpy(worker.bgw_library_name, "postbox_bench", sizeof worker.bgw_library_name);
  strlcpy(worker.bgw_function_name, "postbox_bench_main", sizeof worker.bgw_function_name);
  strlcpy(worker.bgw_name, "postbox bench", sizeof worker.bgw_name);
  strlcpy(worker.bgw_type, "postbox bench", sizeof worker.bgw_type);
  std::memcpy(worker.bgw_extra, &order, sizeof order);
  BackgroundWorkerHandle* handle = nullptr;
  if (!RegisterDynamicBackgroundWorker(&worker, &handle)) {
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
                    errmsg("could not register a background worker"),
                    errhint("Raise max_worker_processes.")));
  }
  pid_t pid = 0;
  WaitForBackgroundWorkerStartup(handle, &pid);
  PG_RETURN_INT32(pid);
}
