#include "worker/pubsub/pull/ack_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace postbox::pubsub {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<AckEntry> Entries() {
  return {{.handle = 1, .ack_id = "a"}, {.handle = 2, .ack_id = "b"}, {.handle = 3, .ack_id = "c"}};
}

grpc::Status WithInfo(grpc::StatusCode code, const std::map<std::string, std::string>& metadata) {
  google::rpc::RetryInfo retry;
  google::rpc::ErrorInfo info;
  info.set_reason("EXACTLY_ONCE_ACKID_FAILURE");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  google::rpc::Status status;
  status.add_details()->PackFrom(retry);
  status.add_details()->PackFrom(info);
  return grpc::Status(code, "some acks failed", status.SerializeAsString());
}

TEST(AckResultsTest, OkMeansThatAllSucceeded) {
  EXPECT_THAT(AckResults(grpc::Status::OK, Entries()), Each(AckResult::kSuccess));
}

TEST(AckResultsTest, IdsMissingFromTheMapSucceeded) {
  auto status = WithInfo(grpc::StatusCode::INVALID_ARGUMENT,
                         {{"a", "PERMANENT_FAILURE_INVALID_ACK_ID"},
                          {"c", "TRANSIENT_FAILURE_UNORDERED_ACK_ID"},
                          {"of another request", "TRANSIENT_FAILURE_OTHER"}});
  EXPECT_THAT(AckResults(status, Entries()),
              ElementsAre(AckResult::kPermanent, AckResult::kSuccess, AckResult::kTransient));
}

TEST(AckResultsTest, WithoutAMapTheCodeHoldsForAll) {
  EXPECT_THAT(AckResults(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""), Entries()),
              Each(AckResult::kTransient));
  EXPECT_THAT(AckResults(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, ""), Entries()),
              Each(AckResult::kPermanent));
  EXPECT_THAT(AckResults(WithInfo(grpc::StatusCode::ABORTED, {{"service", "pubsub"}}), Entries()),
              Each(AckResult::kTransient));
}

TEST(AckResultsTest, UnreadableDetailsAreNoDetails) {
  EXPECT_THAT(AckResults(grpc::Status(grpc::StatusCode::INTERNAL, "", "\xff\xff\xff"), Entries()),
              Each(AckResult::kTransient));
}

// What could be read of it would make successes of the ids that it does not name any more.
TEST(AckResultsTest, AMapThatIsCutOffIsNoMap) {
  google::rpc::ErrorInfo info;
  (*info.mutable_metadata())["a"] = "PERMANENT_FAILURE_INVALID_ACK_ID";
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  std::string* const bytes = details.mutable_details(0)->mutable_value();
  bytes->append(
      "\x1A\x20\x0A\x01"
      "b");
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "", details.SerializeAsString());
  EXPECT_THAT(AckResults(status, Entries()), Each(AckResult::kTransient));
}

}  // namespace
}  // namespace postbox::pubsub
