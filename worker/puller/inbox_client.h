// The inbox as the puller sees it: one transaction a call.
#ifndef POSTBOX_WORKER_PULLER_INBOX_H_
#define POSTBOX_WORKER_PULLER_INBOX_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/puller/database.h"
#include "worker/puller/key_queue.h"

namespace postbox::puller {

struct InboxResult {
  bool ok = false;                    // committed
  std::vector<std::string> outcomes;  // if ok: one per event
  std::string sqlstate;               // if not: empty when the connection broke
  std::string error;
};

class Inbox {
 public:
  virtual ~Inbox() = default;

  // Applies the events in order, all or none: an event's own error fails the call. With no events
  // it only tells whether the inbox can be used at all.
  virtual InboxResult Apply(const std::vector<const Delivery*>& events) = 0;
  // Records an event that is given up in postbox.dead_letter.
  virtual InboxResult RecordDeadLetter(const Delivery& delivery, const std::string& sqlstate,
                                       const std::string& error, int attempts) = 0;
};

// Over a connection that ends when it breaks; Connect makes the next.
class DatabaseInbox : public Inbox {
 public:
  DatabaseInbox(std::string dsn, std::string application_name, Oid inbox)
      : dsn_(std::move(dsn)), application_name_(std::move(application_name)), inbox_(inbox) {}

  bool Connect(std::string* error);
  bool connected() { return connection_ != nullptr && connection_->alive(); }
  // Any thread, as long as this lives: gives up the statement that runs, if any.
  void Cancel();

  InboxResult Apply(const std::vector<const Delivery*>& events) override;
  InboxResult RecordDeadLetter(const Delivery& delivery, const std::string& sqlstate,
                               const std::string& error, int attempts) override;

 private:
  const std::string dsn_;
  const std::string application_name_;
  const Oid inbox_;
  std::mutex mutex_;  // of connection_ against Cancel
  std::unique_ptr<Connection> connection_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_INBOX_H_
