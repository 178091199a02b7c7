#include "worker/cli/audit/row_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SourceEvent Emitted(const std::string& id, const std::string& key, int64_t version,
                    const std::string& type = "created") {
  return {.id = id,
          .aggregate_type = "order",
          .aggregate_id = key,
          .event_type = type,
          .version = version,
          .occurred = 1,
          .bytes = 1,
          .place = 1,
          .state = "published"};
}

class RowComparisonTest : public ::testing::Test {
 protected:
  // All of them are applied.
  std::vector<SourceEvent> Last(const std::vector<SourceEvent>& page) {
    Arrivals arrivals;
    for (const SourceEvent& event : page) {
      arrivals[event.id].id = event.id;
      arrivals[event.id].outcome = "applied";
    }
    return rows_.Last(page, arrivals);
  }
  static ComparedRow Found(size_t number, const std::string& target, const std::string& problem) {
    return {.number = number,
            .target = target,
            .problem = problem,
            .stored_version = 1,
            .details = "total"};
  }

  RowComparison rows_{{{"created", {"app.item"}}, {"paid", {"app.item", "app.bill"}}}};
};

TEST_F(RowComparisonTest, OnlyTheLastEventOfAKeyIsCompared) {
  const std::vector<SourceEvent> last =
      Last({Emitted("1", "a", 1), Emitted("2", "a", 2), Emitted("3", "b", 1)});
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_EQ(last[0].id, "2");
  EXPECT_EQ(last[1].id, "3");
}

TEST_F(RowComparisonTest, EventsThatNoProjectionTakesAreNotCompared) {
  EXPECT_THAT(Last({Emitted("1", "a", 1, "opened")}), IsEmpty());
}

TEST_F(RowComparisonTest, AnEventIsComparedOnlyWithTheTargetsForWhichItIsTheLast) {
  const std::vector<SourceEvent> last =
      Last({Emitted("1", "a", 1, "paid"), Emitted("2", "a", 2, "created")});
  ASSERT_THAT(last, SizeIs(2));  // 1 for app.bill, 2 for app.item
  rows_.Take(last, {Found(0, "app.item", "newer"), Found(0, "app.bill", "missing")});
  ASSERT_THAT(rows_.doubts(), SizeIs(1));
  EXPECT_EQ(rows_.doubts()[0].found.target, "app.bill");
}

TEST_F(RowComparisonTest, ALaterEventOfTheKeyEndsADoubt) {
  rows_.Take(Last({Emitted("1", "a", 1)}), {Found(0, "app.item", "newer")});
  EXPECT_THAT(rows_.doubts(), SizeIs(1));
  Last({Emitted("2", "a", 2)});
  EXPECT_THAT(rows_.doubts(), IsEmpty());
}

TEST_F(RowComparisonTest, AnEventForAnotherTargetDoesNot) {
  rows_.Take(Last({Emitted("1", "a", 1, "paid")}),
             {Found(0, "app.item", "older"), Found(0, "app.bill", "older")});
  EXPECT_THAT(rows_.doubts(), SizeIs(2));
  rows_.See(Emitted("2", "a", 2, "created"));
  ASSERT_THAT(rows_.doubts(), SizeIs(1));
  EXPECT_EQ(rows_.doubts()[0].found.target, "app.bill");
}

TEST_F(RowComparisonTest, ADoubtThatIsNotFoundAgainIsOver) {
  rows_.Take(Last({Emitted("1", "a", 1), Emitted("2", "b", 1)}),
             {Found(0, "app.item", "differs"), Found(1, "app.item", "differs")});
  const std::vector<SourceEvent> again = rows_.TakeDoubts();
  ASSERT_THAT(again, SizeIs(2));
  rows_.Take(again, {Found(1, "app.item", "differs")});
  ASSERT_THAT(rows_.doubts(), SizeIs(1));
  EXPECT_EQ(rows_.doubts()[0].event.id, again[1].id);
}

TEST_F(RowComparisonTest, RowsThatCannotBeComparedHaveAReasonAndAreNoDifference) {
  rows_.Take(Last({Emitted("1", "a", 1)}), {Found(0, "app.item", "unchecked")});
  EXPECT_THAT(rows_.doubts(), IsEmpty());
  EXPECT_THAT(rows_.reasons(), ElementsAre("app.item: total"));
}

TEST_F(RowComparisonTest, AnEventThatWasNotAppliedHasNoRow) {
  Arrivals arrivals;
  arrivals["1"].outcome = "rejected";
  EXPECT_THAT(rows_.Last({Emitted("1", "a", 1)}, arrivals), IsEmpty());
}

TEST_F(RowComparisonTest, DoubtsOfAnEarlierAuditAreComparedAgain) {
  DoubtfulRow doubt{.event = Emitted("1", "a", 1), .found = {}};
  doubt.found.target = "app.item";
  rows_.Resume({doubt});
  const std::vector<SourceEvent> again = rows_.TakeDoubts();
  ASSERT_THAT(again, SizeIs(1));
  rows_.Take(again, {});
  EXPECT_THAT(rows_.doubts(), IsEmpty());
}

TEST(RowComparisonCrowdTest, ManyRowsInDoubtAreAskedFor) {
  RowComparison rows({{"order.created", {"app.item", "app.bill"}}, {"order.paid", {"app.item"}}});
  EXPECT_THAT(rows.TypesOf("app.item"), ::testing::SizeIs(2));
  EXPECT_THAT(rows.TypesOf("app.bill"), ::testing::SizeIs(1));
  std::vector<DoubtfulRow> doubts;
  for (size_t i = 0; i < RowComparison::kCrowded; ++i) {
    DoubtfulRow doubt;
    doubt.event.aggregate_id = std::to_string(i);
    doubt.found.target = "app.item";
    doubts.push_back(doubt);
  }
  rows.Resume(doubts);
  EXPECT_TRUE(rows.crowded());
  const auto by_target = rows.ByTarget();
  for (size_t i = 1; i < doubts.size(); ++i) rows.Drop(by_target.at("app.item")[i]);
  rows.Thinned();
  EXPECT_FALSE(rows.crowded());
  EXPECT_THAT(rows.doubts(), ::testing::SizeIs(1));
}

}  // namespace
}  // namespace postbox::cli
