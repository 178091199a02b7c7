#include "worker/cli/audit/audit_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "worker/cli/audit/audit_failure.h"
#include "worker/cli/audit/ghosts.h"

namespace postbox::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class AuditStateTest : public ::testing::Test {
 protected:
  AuditStateTest() {
    char folder[] = "/tmp/audit_state.XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/state";
  }
  ~AuditStateTest() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  std::string Refused(const std::string& source, const std::string& reader) const {
    try {
      LoadState(path_, source, reader);
    } catch (const AuditFailure& failure) {
      return failure.obstacle().text;
    }
    return "";
  }
  static AuditState Some() {
    AuditState state{.source = "s",
                     .reader = "r",
                     .scope = "rows",
                     .source_history = {1, 2},
                     .reader_history = {3, 4},
                     .captured = 5,
                     .place = 6,
                     .arrived = 7,
                     .newest = 8,
                     .unrecorded = {9, 10},
                     .unsettled = {},
                     .rows = {},
                     .ghosts = {}};
    const SourceEvent event{.id = "id",
                            .aggregate_type = "t",
                            .aggregate_id = "\"a\"\n",
                            .event_type = "e",
                            .version = std::nullopt,
                            .occurred = 1,
                            .bytes = 2,
                            .place = 3,
                            .state = "published"};
    state.unsettled.push_back(
        {.event = event, .kind = "missing", .detail = "d", .skipped = true, .certain = false});
    DoubtfulRow row{.event = event, .found = {}};
    row.found.target = "app.item";
    state.rows.push_back(row);
    Arrival ghost;
    ghost.id = "g";
    state.ghosts.push_back(ghost);
    return state;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(AuditStateTest, AMissingFileIsNoState) {
  EXPECT_FALSE(LoadState(path_, "s", "r").has_value());
}

TEST_F(AuditStateTest, WhatIsStoredIsRead) {
  SaveState(path_, Some());
  SaveState(path_, Some());
  const auto state = LoadState(path_, "s", "r");
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->place, 6);
  EXPECT_EQ(state->newest, 8);
  EXPECT_EQ(state->scope, "rows");
  EXPECT_EQ(state->source_history.wal, 2);
  EXPECT_EQ(state->reader_history.timeline, 3);
  EXPECT_EQ(state->unrecorded.last, 10);
  ASSERT_THAT(state->unsettled, SizeIs(1));
  EXPECT_EQ(state->unsettled[0].event.aggregate_id, "\"a\"\n");
  EXPECT_FALSE(state->unsettled[0].event.version.has_value());
  EXPECT_TRUE(state->unsettled[0].skipped);
  EXPECT_EQ(state->rows.at(0).found.target, "app.item");
  EXPECT_EQ(state->ghosts.at(0).id, "g");
}

TEST_F(AuditStateTest, TheFileOfOthersIsRefused) {
  SaveState(path_, Some());
  EXPECT_THAT(Refused("other", "r"), HasSubstr("another publication"));
  EXPECT_THAT(Refused("s", "other"), HasSubstr("another inbox"));
}

TEST_F(AuditStateTest, AFileThatIsCutIsRefused) {
  std::ofstream(path_) << "{\"format\": 1, \"sour";
  EXPECT_THAT(Refused("s", "r"), HasSubstr("another format"));
  std::ofstream(path_) << "{\"format\": 1, \"source\": 7}";
  EXPECT_THAT(Refused("s", "r"), HasSubstr("another format"));
}

TEST_F(AuditStateTest, OneAuditAtATimeUsesAFile) {
  {
    const StateLock lock(path_);
    EXPECT_THROW(StateLock{path_}, AuditFailure);
    const StateLock none("");
  }
  const StateLock again(path_);
  unlink((path_ + ".lock").c_str());
}

TEST(HistoryTest, ATimelineOrLessWalBreaksIt) {
  EXPECT_TRUE((History{1, 10}.Continues({1, 10})));
  EXPECT_TRUE((History{1, 11}.Continues({1, 10})));
  EXPECT_FALSE((History{1, 9}.Continues({1, 10})));
  EXPECT_FALSE((History{2, 11}.Continues({1, 10})));
}

TEST_F(AuditStateTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(SaveState(folder_ + "-missing/state", Some()), AuditFailure);
}

TEST(GhostsTest, WhatArrivedOrWasEmittedBeforeTheRetentionIsNoGhost) {
  const RetainedFrom retained{.source = 1'000'000'000, .reader = 1'100'000'000};
  Arrival arrival;
  arrival.id = "00000000-0000-4000-8000-000000000000";
  arrival.received = 1'099'999'999;
  EXPECT_FALSE(IsGhost(arrival, retained));
  arrival.received = 1'100'000'000;
  EXPECT_TRUE(IsGhost(arrival, retained));
  arrival.id = "00000000-0001-7000-8000-000000000000";  // emitted at 1 ms
  EXPECT_FALSE(IsGhost(arrival, retained));
}

}  // namespace
}  // namespace postbox::cli
