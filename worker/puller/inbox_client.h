// The puller's access to an inbox. Each call is one transaction.
#ifndef POSTBOX_WORKER_PULLER_INBOX_CLIENT_H_
#define POSTBOX_WORKER_PULLER_INBOX_CLIENT_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/puller/database.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/parked_retry.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

struct InboxResult {
  bool ok = false;                      // the transaction is committed
  std::vector<std::string> outcomes{};  // if ok: one for each event
  std::string sqlstate{};               // if not ok; empty if the connection broke
  std::string error{};
  bool not_begun = false;            // if not ok: it failed before the events were looked at
  std::optional<size_t> event_at{};  // if not ok: the event that the error is about, if it says so
  std::chrono::milliseconds took{0};
};

class InboxClient {
 public:
  virtual ~InboxClient() = default;

  // Applies the events in order, all or none: the error of one event fails the call. Without events
  // the call only tells whether the inbox can be used.
  InboxResult Apply(const std::vector<const Delivery*>& events) {
    return Apply(events, std::nullopt);
  }
  // Cancels it after `time`, if that is given and shorter than statement_timeout.
  virtual InboxResult Apply(const std::vector<const Delivery*>& events,
                            std::optional<std::chrono::milliseconds> time) = 0;
  // Records an event in postbox.dead_letter, and parks its key if `park`. If ok, there is one
  // outcome.
  virtual InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure,
                                       bool park) = 0;
};

// What postbox.inbox_apply_batch says with json_detail.
struct ErrorDetail {
  std::optional<size_t> event_at{};  // the position of the event that has failed
  std::string text{};
};
inline constexpr size_t kMaxDetailBytes = 1048576;
// Nothing if it is another detail, or a longer one: that of an error before the first event or at
// COMMIT, where a deferred trigger can write any text.
std::optional<ErrorDetail> ReadErrorDetail(std::string_view json);

// Over a libpq connection. A connection that broke stays broken until Connect replaces it.
class DatabaseInboxClient : public InboxClient {
 public:
  // `event_type`: the OID of postbox.event.
  DatabaseInboxClient(std::string dsn, std::string application_name, Oid inbox, Oid event_type,
                      TransactionLimits limits)
      : dsn_(std::move(dsn)),
        application_name_(std::move(application_name)),
        inbox_(inbox),
        event_type_(event_type),
        limits_(limits),
        interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~DatabaseInboxClient() override {
    connection_.reset();
    if (interrupt_ >= 0) close(interrupt_);
  }

  // On failure returns false and puts the reason into `error`.
  bool Connect(std::string* error);
  bool connected() { return connection_ != nullptr && connection_->alive(); }
  void Disconnect();
  // The statement that waits for its answer, if any does. May be called on any thread.
  std::optional<Unanswered> asked();
  // Cancels the statement that runs, if any. May be called on any thread.
  void Cancel();
  // Ends whatever waits for the server: the connection is broken, and none is opened any more. May
  // be called on any thread.
  void Abort();
  // The statements to come must be over by then. Not while one runs.
  void SetDeadline(std::chrono::steady_clock::time_point deadline);

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<std::chrono::milliseconds> time) override;
  InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure,
                               bool park) override;
  // Retries the parked key that has been due for longest. `count`: says how much is parked, too.
  ParkedStep RetryParked(bool count);

  // The thread that uses this has got a step further, or it has nothing to do and waits for work.
  // Any thread may ask when that was; while it waits for work, that is in the future, and so is the
  // time by which a connection is there, or is not.
  void Progressed() { progressed_at_ = std::chrono::steady_clock::now(); }
  void Waits() { progressed_at_ = std::chrono::steady_clock::time_point::max(); }
  std::chrono::steady_clock::time_point progressed_at() const { return progressed_at_; }

  // Stores the report of this process, or, without numbers, removes it.
  InboxResult Report(const std::string& subscription, int appliers, const StatusNumbers* numbers);

 private:
  // A statement is with the server.
  class Asking {
   public:
    explicit Asking(DatabaseInboxClient* client);
    ~Asking();
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    DatabaseInboxClient* const client_;
  };

  QueryResult Ask(const char* sql, const std::vector<Parameter>& parameters,
                  std::optional<std::chrono::milliseconds> time = std::nullopt);

  const std::string dsn_;
  const std::string application_name_;
  const Oid inbox_;
  const Oid event_type_;
  const TransactionLimits limits_;
  const int interrupt_;  // readable after Abort()
  std::mutex mutex_;     // held where connection_ is replaced, and by Cancel
  std::unique_ptr<Connection> connection_;
  std::optional<Unanswered> asked_;  // guarded by mutex_
  std::atomic<std::chrono::steady_clock::time_point> progressed_at_ =
      std::chrono::steady_clock::now();
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_INBOX_CLIENT_H_
