// Pulls one subscription:
//
//     Subscriber (its I/O thread) -> KeyQueues -> appliers (a thread and a connection each) -> ack
//
//   - An applier takes a batch when the batch would be full, or when it is due (batch_timer.h), and
//     only while the gate (apply_gate.h) is open.
//   - A message is acked only after the transaction that applied it is committed.
//   - A failure suspends its key until its delay is over. Then the failed message and what follows
//     of the key are given back, in order.
//   - A key is given back in one step: its queue is emptied and its gate is closed (key_gate.h) on
//     the thread that hands messages on. It used to be emptied by an applier, and closed when the
//     nack came to that thread. A later message of the key that was handed on in between found
//     neither, and was applied before the one that had failed:
//         applier                               I/O thread
//         m1 fails; its queue is forgotten
//                                               m2 arrives, the gate is open: a new queue, ready
//         another applier takes m2              nack of m1: the gate closes, too late
//     Now m2 arrives either before the step, and is given back with m1, or after it, and is turned
//     away.
//   - An event that has failed is tried again in a batch of its own. All appliers but one, if there
//     are several, may have such batches, so that one of them is always there for what is healthy.
//   - An event that goes to the dead-letter topic keeps its key busy until the topic has taken it.
//     One that the topic refuses for good, because of its size for example, is recorded in
//     postbox.dead_letter.
//   - An applier takes no batch without a connection. Which of them have one follows from the work
//     (connection_shares.h): those without one wait for their turn to connect, one at a time.
//   - Shutdown: StopPulling, then Finish, which returns before the time that it is given, whatever
//     does not answer: the database, a pooler before it, Pub/Sub, or the dead-letter topic. It lets
//     the appliers apply what the puller holds, as long as any of them has a connection. It keeps
//     the last part of the time, half of it and 2 to 5 s, to cancel the statements that still run,
//     to end the connections that do not answer a little later, and to nack the rest.
#ifndef POSTBOX_WORKER_PULLER_RUNNER_H_
#define POSTBOX_WORKER_PULLER_RUNNER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/rules/backoff.h"
#include "worker/pubsub/pull/subscriber.h"
#include "worker/puller/apply_gate.h"
#include "worker/puller/batch_applier.h"
#include "worker/puller/batch_timer.h"
#include "worker/puller/config.h"
#include "worker/puller/connection_shares.h"
#include "worker/puller/dead_letter_topic.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/paced_inbox.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

class Runner {
 public:
  using Clock = std::chrono::steady_clock;

  // `status`: that of an earlier runner of the subscription, or a new one. `shares`, of the
  // process, outlives it.
  Runner(SubscriptionConfig config, std::string dsn, std::shared_ptr<PullStatus> status,
         ConnectionShares* shares);
  ~Runner();  // Finish(now)
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Returns false and puts the reason into `error` if no thread can be started.
  bool Start(std::string* error);
  void StopPulling();
  // Returns before `end`, or 2 s from now if that is later.
  void Finish(Clock::time_point end);
  // Any thread: what ends, or will, has no more time than until then, or 2 s from now.
  void EndBy(Clock::time_point end);
  // Before Finish: the subscription is started again, so its report stays.
  void StartsAgain() { starts_again_ = true; }

  const std::shared_ptr<PullStatus>& status() const { return status_; }
  const SubscriptionConfig& config() const { return config_; }
  // True if the service refused the subscription with an error that does not pass. It was logged.
  bool failed();
  // The statement that has had no answer for longest, if that is kUnansweredTime or more; the
  // status shows it from then on. No more than that is said: a long statement may be in order.
  std::optional<Unanswered> LookForAnswers();
  static constexpr std::chrono::seconds kUnansweredTime{20};
  // The numbers of a report that no applier has stored in time: all are busy, or have no
  // connection. Then Stored() tells what became of it.
  std::optional<StatusNumbers> TakeLateReport();
  void Stored(const QueryResult& result);
  // After Finish: its report is still there. It starts again, or no applier had a connection to
  // remove it.
  bool report_left() const { return report_left_; }
  // Lets appliers that wait look again at what other subscriptions need.
  void LookAtShares() { changed_.notify_all(); }
  // Whether one of its threads has made no progress for longer than any wait of it may last. Asks
  // the I/O thread for a sign, which the next call sees.
  bool Stuck();

 private:
  struct Applier {
    std::unique_ptr<DatabaseInboxClient> inbox;
    std::thread thread;
  };
  // What the thread of an applier knows of its connection.
  struct Session {
    DatabaseInboxClient* inbox;
    bool connected = false;  // counted in connections_
  };

  void StartAppliers();
  void OnMessages(std::vector<pubsub::ReceivedMessage> messages);
  void SetStreamState(PullStatus::Stream stream, const std::string& error);
  void AckFailed(const std::string& error);
  // The status or the gate has changed: an applier that waits looks again what is due.
  void WakeApplier();
  // Lets the I/O thread give back the keys whose retry_at has come.
  void GiveBackSuspended(Clock::time_point now);
  ApplyPolicy Policy() const;
  void ApplierLoop(DatabaseInboxClient* inbox);
  // The time until which an applier has to wait. If it is not in the future, there is work, which
  // may be to connect, or to close its connection.
  Clock::time_point NextWork(const Session& session, Clock::time_point now);
  // The time since which, or from which on, there is a batch to be applied.
  Clock::time_point NextBatch() const;
  // When an applier without a connection is to connect, whose turn it is.
  Clock::time_point NextConnect(Clock::time_point now);
  void Connect(Session* session, std::unique_lock<std::mutex>* lock);
  void Disconnect(Session* session, std::unique_lock<std::mutex>* lock);
  // Null if there is none, or if too many appliers have one.
  std::optional<Clock::time_point> NextSuspect() const;
  // Empty if another applier was faster. Enters `inbox`.
  std::vector<Delivery> TakeBatch(size_t limit, PacedInbox* inbox);
  // Leaves `inbox`.
  void ApplyBatch(std::vector<Delivery> batch, BatchApplier* applier, PacedInbox* inbox);
  // Tells the queues of a batch what became of its messages. Moves the unsettled ones out of
  // `batch`.
  void ReturnToQueues(const std::vector<Disposition>& dispositions, std::vector<Delivery>* batch);
  // `unsettled` are the messages of one queue; `first` is the disposition of the first of them.
  void ReturnToQueue(const std::string& queue_key, std::vector<Delivery> unsettled,
                     const Disposition& first, Clock::time_point now);
  void OnDeadLetterResult(DeadLetterTopic::Letter letter);
  void CountOutcomes(const std::vector<Delivery>& batch,
                     const std::vector<Disposition>& dispositions);
  StatusNumbers TakeStatus();
  void Report(DatabaseInboxClient* inbox, std::unique_lock<std::mutex>* lock);
  void NoteReport(bool stored, const std::string& sqlstate, const std::string& error);
  // Removes the report of this process. That of a subscription that was refused stays, since it
  // says why.
  void LastReport(Clock::duration time);
  // Ends the statements that run, and after `time` the connections that do not answer.
  void StopAppliers(Clock::duration time);
  void AbortApplier(DatabaseInboxClient* inbox) const;
  // The part of Finish in which the appliers go on. Returns the time for the rest of it.
  Clock::duration ApplyWhatIsHeld();
  void LogApplied(const std::vector<Delivery>& batch, const std::vector<Disposition>& dispositions,
                  Clock::duration took) const;

  const SubscriptionConfig config_;
  const std::string dsn_;
  AttemptCounter attempts_;
  const std::shared_ptr<PullStatus> status_;
  ApplyGate gate_;
  std::atomic<bool> ordered_ = false;  // as the service said last
  DeadLetterTopic dead_letter_topic_;
  std::unique_ptr<pubsub::Subscriber> subscriber_;
  std::vector<Applier> appliers_;
  std::atomic<Clock::time_point> io_progressed_at_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable changed_;
  KeyQueues queues_;
  BatchTimer batch_timer_;
  int running_ = 0;           // appliers that have not left
  int busy_ = 0;              // appliers with a batch
  int free_ = 0;              // appliers with a connection that wait for work
  int reporting_ = 0;         // appliers that store a report
  int suspects_ = 0;          // appliers with a suspect
  int letters_ = 0;           // on their way to the dead-letter topic
  bool giving_back_ = false;  // the I/O thread has been told to give back suspended keys
  bool stopping_ = false;
  SubscriptionConnections connections_;       // as the appliers knew last
  const Session* next_to_connect_ = nullptr;  // whose turn it is
  std::atomic<bool> cancelling_ = false;      // no statement begins any more
  bool failed_ = false;
  bool finished_ = false;
  Clock::time_point end_ = Clock::time_point::max();          // of Finish
  Clock::time_point apply_until_ = Clock::time_point::max();  // the part of it before closing_
  Clock::duration closing_{0};
  bool starts_again_ = false;
  bool report_left_ = false;
  pubsub::Backoff letter_backoff_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RUNNER_H_
