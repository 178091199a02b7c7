// What ack_wire writes, the generated classes read.
#include "worker/pubsub/pull/ack_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::pubsub {
namespace {

namespace api = google::pubsub::v1;
using ::testing::ElementsAreArray;

constexpr char kReader[] = "projects/p/subscriptions/video.events.reader";

AckRequest Request(int deadline_seconds, const std::vector<std::string>& ids) {
  AckRequest request;
  request.deadline_seconds = deadline_seconds;
  for (const std::string& id : ids) request.entries.push_back(AckEntry{.ack_id = id});
  return request;
}

TEST(AckWire, AnAckIsReadAsItWasWritten) {
  const std::vector<std::string> ids = {"a", std::string(127, 'b'), std::string(128, 'c'),
                                        std::string(20'000, 'd')};
  api::AcknowledgeRequest read;
  ASSERT_TRUE(
      read.ParseFromString(EncodeAckRequest(kReader, Request(AckRequest::kAcknowledge, ids))));
  EXPECT_EQ(read.subscription(), kReader);
  EXPECT_THAT(read.ack_ids(), ElementsAreArray(ids));
}

TEST(AckWire, ADeadlineIsReadAsItWasWrittenAndThatOfANackIsZero) {
  const std::vector<std::string> ids = {"a", "b"};
  for (const int seconds : {0, 10, 60, 600}) {
    api::ModifyAckDeadlineRequest read;
    ASSERT_TRUE(read.ParseFromString(EncodeAckRequest(kReader, Request(seconds, ids))));
    EXPECT_EQ(read.subscription(), kReader);
    EXPECT_EQ(read.ack_deadline_seconds(), seconds);
    EXPECT_THAT(read.ack_ids(), ElementsAreArray(ids));
  }
}

}  // namespace
}  // namespace postbox::pubsub
