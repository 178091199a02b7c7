// postbox_test.so: what the publisher worker does to a table outbox, as SQL functions, so that
// tests decide when it does it and what else happens meanwhile. The functions run the worker's own
// classes and with them its own SQL. Never installed; control/run-isolation and control/run-regress
// make the server find it in the build directory. No worker may run beside them
// (postbox.publishers = 0).
//
//   CREATE FUNCTION pin_settings() RETURNS void
//       LANGUAGE C AS 'postbox_test', 'postbox_test_pin_settings';
//   CREATE FUNCTION claim(publication text, lock_token text, at_most int) RETURNS text[]
//       LANGUAGE C AS 'postbox_test', 'postbox_test_claim';
//   CREATE FUNCTION settle(publication text, lock_token text, ids text[], result text, error text)
//       RETURNS void LANGUAGE C AS 'postbox_test', 'postbox_test_settle';
//
//   pin_settings  sets in this session what the worker sets in its own. Call it once, first.
//   claim         OutboxSource::Claim in the transaction of the caller, as the worker that writes
//                 this lock token; returns the ids of the claimed events, in their order.
//   settle        OutboxSource::Settle in the transaction of the caller for events that this
//                 session has claimed, as if Pub/Sub had answered `result`: 'published',
//                 'rejected', 'behind', 'topic broken' or 'unknown', for all but the first with
//                 this error; or 'leaving': the worker leaves before an answer.
//
// A transaction that holds a single call of claim or settle is what the worker runs; the test may
// keep it open, or roll it back.
#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/spi.h"
#include "extension/trust/worker_session.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/source/outbox_source.h"
#include "worker/publisher/source/table/table_outbox.h"

extern "C" {
PG_MODULE_MAGIC;
PGDLLEXPORT Datum postbox_test_pin_settings(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum postbox_test_claim(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum postbox_test_settle(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(postbox_test_pin_settings);
PG_FUNCTION_INFO_V1(postbox_test_claim);
PG_FUNCTION_INFO_V1(postbox_test_settle);
}

namespace postbox::publisher {

namespace {

// What this session has claimed, by id, from the claim to the settlement. An event that was claimed
// again is there as the last claim returned it. Never destroyed: exit must not run destructors that
// call a server which has gone.
std::unordered_map<std::string, EventPointer>& Claimed() {
  static auto& claimed = *new std::unordered_map<std::string, EventPointer>();
  return claimed;
}

// As the worker's transaction begins (base/transaction.h), and then its source for the publication.
// A new one for each call, since the test may have dropped and created the outbox in the meantime.
std::shared_ptr<OutboxSource> OpenSource(const std::string& name, const std::string& lock_token) {
  Pg([] { FindSettings(); });
  Pg([] { ShareExtension(); });
  bool copies = false;
  for (const Publication& publication : LoadPublications(&copies)) {
    if (publication.name != name) continue;
    if (publication.is_log()) {
      Throw(ERRCODE_WRONG_OBJECT_TYPE,
            "publication \"" + name + "\" does not publish a table outbox");
    }
    const std::string topic = "projects/postbox-test/topics/" + publication.topic;
    return std::make_shared<TableOutbox>(publication, topic, lock_token);
  }
  Throw(ERRCODE_UNDEFINED_OBJECT, "publication \"" + name + "\" does not exist");
}

std::vector<std::string> Claim(const std::string& publication, const std::string& lock_token,
                               int at_most) {
  const SpiConnection spi;
  const auto source = OpenSource(publication, lock_token);
  const ClaimLimits limits{.events = static_cast<std::size_t>(std::max(at_most, 1)),
                           .bytes = std::size_t{100} * 1024 * 1024};
  Transaction transaction = Transaction::OfCaller();
  std::vector<std::string> ids;
  for (EventPointer& event : source->Claim(limits, &transaction).events) {
    event->owner = source;
    ids.push_back(event->id);
    Claimed().insert_or_assign(ids.back(), std::move(event));
  }
  return ids;
}

void SetResult(const std::string& result, const std::string& error, ClaimedEvent* event) {
  using pubsub::PublishStatus;
  static constexpr std::pair<std::string_view, PublishStatus> kResults[] = {
      {"published", PublishStatus::kPublished},     {"rejected", PublishStatus::kRejected},
      {"behind", PublishStatus::kBehind},           {"unknown", PublishStatus::kUnknown},
      {"unreachable", PublishStatus::kUnreachable}, {"topic broken", PublishStatus::kTopicBroken}};
  event->leaving = result == "leaving";
  if (event->leaving) return;
  for (const auto& [name, status] : kResults) {
    if (name != result) continue;
    event->status = status;
    if (status != PublishStatus::kPublished) event->error = error;
    return;
  }
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "there is no such result: " + result);
}

void Settle(const std::string& publication, const std::string& lock_token,
            const std::vector<std::string>& ids, const std::string& result,
            const std::string& error) {
  const SpiConnection spi;
  const auto source = OpenSource(publication, lock_token);
  Events events;
  for (const std::string& id : ids) {
    const auto found = Claimed().find(id);
    if (found == Claimed().end()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "this session has not claimed event " + id);
    }
    SetResult(result, error, found->second.get());
    events.push_back(std::move(found->second));
    Claimed().erase(found);
  }
  Transaction transaction = Transaction::OfCaller();
  source->Settle(events, &transaction);
}

}  // namespace

}  // namespace postbox::publisher

Datum postbox_test_pin_settings(PG_FUNCTION_ARGS) {
  (void)fcinfo;
  postbox::PinWorkerSettings();
  PG_RETURN_VOID();
}

Datum postbox_test_claim(PG_FUNCTION_ARGS) {
  return postbox::Guarded([&]() -> Datum {
    const std::vector<std::string> ids =
        postbox::publisher::Claim(postbox::TextArgument(fcinfo, 0, "publication"),
                                  postbox::TextArgument(fcinfo, 1, "lock_token"),
                                  DatumGetInt32(postbox::Argument(fcinfo, 2, "at_most")));
    return postbox::TextArrayValue(ids);
  });
}

Datum postbox_test_settle(PG_FUNCTION_ARGS) {
  postbox::Guarded([&] {
    postbox::publisher::Settle(
        postbox::TextArgument(fcinfo, 0, "publication"),
        postbox::TextArgument(fcinfo, 1, "lock_token"),
        postbox::TextArrayArgument(postbox::Argument(fcinfo, 2, "ids"), "ids"),
        postbox::TextArgument(fcinfo, 3, "result"), postbox::TextArgument(fcinfo, 4, "error"));
  });
  PG_RETURN_VOID();
}
