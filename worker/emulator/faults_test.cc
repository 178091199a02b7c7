// The rules of faults: parsing, matching, counting.
#include "worker/emulator/faults.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::emulator {
namespace {

bool Any(const Fault& /*fault*/) { return true; }

TEST(FaultSpec, EveryKeyIsUnderstood) {
  const auto fault = ParseFault(
      "rpc=Publish,code=UNAVAILABLE,count=3,skip=1,probability=0.5,latency-ms=100,after-effect,"
      "attribute=type:a:b,ordering-key=K,message=gone,action=ack-error,error-info=TRANSIENT_X,"
      "partial,trailer-bytes=9");
  ASSERT_TRUE(fault.ok()) << fault.status();
  EXPECT_EQ(fault->rpc(), "Publish");
  EXPECT_EQ(fault->code(), 14);
  EXPECT_EQ(fault->count(), 3);
  EXPECT_EQ(fault->skip(), 1);
  EXPECT_EQ(fault->probability(), 0.5);
  EXPECT_EQ(fault->latency_ms(), 100);
  EXPECT_TRUE(fault->after_effect());
  EXPECT_EQ(fault->attribute_key(), "type");
  EXPECT_EQ(fault->attribute_value(), "a:b");
  EXPECT_EQ(fault->ordering_key(), "K");
  EXPECT_EQ(fault->message(), "gone");
  EXPECT_EQ(fault->action(), Fault::ACK_ERROR);
  EXPECT_EQ(fault->error_info(), "TRANSIENT_X");
  EXPECT_TRUE(fault->partial());
  EXPECT_EQ(fault->trailer_bytes(), 9);
}

TEST(FaultSpec, LatencyAloneIsADelayAndNothingAtAllIsRefused) {
  EXPECT_EQ(ParseFault("rpc=Publish,latency-ms=5")->action(), Fault::DELAY);
  EXPECT_EQ(ParseFault("code=5")->code(), 5);
  for (const char* bad :
       {"", "rpc=Publish", "code=NONSENSE", "code=17", "probability=2,code=5",
        "probability=nan,code=5", "count=x,code=5", "unknown=1,code=5", "action=explode"}) {
    EXPECT_FALSE(ParseFault(bad).ok()) << bad;
  }
}

TEST(Faults, ARuleFiresAsOftenAsItSaysAfterWhatItSkips) {
  Faults faults;
  faults.Add(*ParseFault("rpc=Publish,code=UNAVAILABLE,count=2,skip=1"));
  EXPECT_FALSE(faults.Fire("Publish", {Fault::STATUS}, Any));
  EXPECT_FALSE(faults.Fire("Pull", {Fault::STATUS}, Any));
  EXPECT_FALSE(faults.Fire("Publish", {Fault::STALL}, Any));
  EXPECT_TRUE(faults.Fire("Publish", {Fault::STATUS}, Any));
  EXPECT_TRUE(faults.Fire("Publish", {Fault::STATUS}, Any));
  EXPECT_FALSE(faults.Fire("Publish", {Fault::STATUS}, Any));
  EXPECT_EQ(faults.fired(), 2);
  EXPECT_EQ(faults.waiting(), 0);
}

TEST(Faults, RulesAreTriedInTheOrderInWhichTheyWereAdded) {
  Faults faults;
  faults.Add(*ParseFault("code=UNAVAILABLE,count=1"));
  faults.Add(*ParseFault("code=INTERNAL"));
  EXPECT_EQ(faults.Fire("Publish", {Fault::STATUS}, Any)->code(), 14);
  EXPECT_EQ(faults.Fire("Publish", {Fault::STATUS}, Any)->code(), 13);
  faults.Clear();
  EXPECT_FALSE(faults.Fire("Publish", {Fault::STATUS}, Any));
  EXPECT_EQ(faults.clears(), 1);
}

TEST(Faults, ARuleMatchesByOrderingKeyAndAttribute) {
  google::pubsub::v1::PubsubMessage message;
  message.set_ordering_key("K");
  (*message.mutable_attributes())["type"] = "a";
  EXPECT_TRUE(Matches(*ParseFault("code=5"), message));
  EXPECT_TRUE(Matches(*ParseFault("code=5,ordering-key=K,attribute=type:a"), message));
  EXPECT_TRUE(Matches(*ParseFault("code=5,attribute=type"), message));
  EXPECT_FALSE(Matches(*ParseFault("code=5,attribute=type:b"), message));
  EXPECT_FALSE(Matches(*ParseFault("code=5,attribute=other"), message));
  EXPECT_FALSE(Matches(*ParseFault("code=5,ordering-key=L"), message));
}

TEST(Faults, AProbabilityIsKeptRoughly) {
  Faults faults;
  faults.Add(*ParseFault("code=5,probability=0.5"));
  int fired = 0;
  for (int i = 0; i < 2000; ++i) fired += faults.Fire("Publish", {Fault::STATUS}, Any) ? 1 : 0;
  EXPECT_GT(fired, 700);
  EXPECT_LT(fired, 1300);
}

}  // namespace
}  // namespace postbox::emulator
