#include "proto/rules/error_class.h"

#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

TEST(ErrorClass, EveryStatusCodeOfAPublishHasItsClass) {
  for (const int code : {kCancelled, kUnknownError, kDeadlineExceeded, kResourceExhausted, kAborted,
                         kInternal, kUnavailable, kDataLoss}) {
    EXPECT_EQ(ClassifyPublishError(code, ""), PublishErrorClass::kRetry) << StatusCodeName(code);
  }
  for (const int code : {kNotFound, kPermissionDenied, kUnauthenticated, kFailedPrecondition,
                         kUnimplemented, kAlreadyExists}) {
    EXPECT_EQ(ClassifyPublishError(code, ""), PublishErrorClass::kTopicBroken)
        << StatusCodeName(code);
  }
  EXPECT_EQ(ClassifyPublishError(kInvalidArgument, ""), PublishErrorClass::kEventBroken);
  EXPECT_EQ(ClassifyPublishError(kInternal, "string field contains invalid UTF-8"),
            PublishErrorClass::kEventBroken);
}

TEST(ErrorClass, StreamsReconnectOnWhatPassesAndOnTheirEnd) {
  for (const int code : {kOk, kCancelled, kUnknownError, kDeadlineExceeded, kResourceExhausted,
                         kAborted, kInternal, kUnavailable}) {
    EXPECT_TRUE(ReconnectStream(code)) << StatusCodeName(code);
  }
  for (const int code :
       {kNotFound, kPermissionDenied, kUnauthenticated, kInvalidArgument, kFailedPrecondition}) {
    EXPECT_FALSE(ReconnectStream(code)) << StatusCodeName(code);
  }
}

TEST(ErrorClass, StatusTextsBeginWithTheCode) {
  EXPECT_EQ(StatusText(kUnavailable, "no route"), "UNAVAILABLE: no route");
  EXPECT_EQ(StatusText(kNotFound, ""), "NOT_FOUND");
  EXPECT_EQ(StatusText(99, "x"), "UNKNOWN: x");
}

}  // namespace
}  // namespace postbox::pubsub
