#include "worker/cli/audit/event_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kHour = 3600 * kMicrosPerSecond;
constexpr int64_t kNow = 500'000 * kHour;

std::string Id(int number) {
  const std::string digits = std::to_string(number);
  return "00000000-0000-4000-8000-" + std::string(12 - digits.size(), '0') + digits;
}

SourceEvent Emitted(int place, const std::string& key, int64_t version,
                    const std::string& state = "published") {
  return {.id = Id(place),
          .aggregate_type = "order",
          .aggregate_id = key,
          .event_type = "order.created",
          .version = version,
          .occurred = kNow + place,
          .bytes = 10,
          .place = place,
          .state = state};
}

Arrival Received(const SourceEvent& event, const std::string& outcome = "applied") {
  return {.id = event.id,
          .aggregate_type = event.aggregate_type,
          .aggregate_id = event.aggregate_id,
          .event_type = event.event_type,
          .version = event.version,
          .received = kNow,
          .outcome = outcome,
          .detail = {}};
}

class EventComparisonTest : public ::testing::Test {
 protected:
  void Take(const std::vector<SourceEvent>& events, const std::vector<Arrival>& received) {
    Arrivals arrivals;
    for (const Arrival& arrival : received) arrivals[arrival.id] = arrival;
    comparison_.Take(events, arrivals);
  }
  std::string KindOf(const SourceEvent& event) const {
    const auto found = comparison_.unsettled().find(event.id);
    return found == comparison_.unsettled().end() ? "settled" : found->second.kind;
  }
  int64_t Count(const std::string& kind) const {
    const auto found = comparison_.tally().total().find(kind);
    return found == comparison_.tally().total().end() ? 0 : found->second;
  }

  EventComparison comparison_{kNow - kHour, 0};
};

TEST_F(EventComparisonTest, EventsThatTheInboxHasAreSettledByTheirOutcome) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1), c = Emitted(3, "c", 1);
  Take({a, b, c}, {Received(a), Received(b, "stale"), Received(c, "ignored")});
  comparison_.Finish("");
  EXPECT_THAT(comparison_.unsettled(), IsEmpty());
  EXPECT_EQ(Count("applied"), 1);
  EXPECT_EQ(Count("stale"), 1);
  EXPECT_EQ(Count("ignored"), 1);
}

TEST_F(EventComparisonTest, APublishedEventBeforeOneThatWasReceivedIsMissing) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1);
  Take({a, b}, {Received(b)});
  EXPECT_THAT(comparison_.Waiting(), SizeIs(1));
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "missing");
  EXPECT_EQ(Count("waiting"), 0);
}

TEST_F(EventComparisonTest, AVersionBeforeAReceivedOneOfItsAggregateIsSkipped) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "a", 2);
  Take({a, b}, {Received(b)});
  comparison_.Finish("it retries");
  EXPECT_EQ(KindOf(a), "skipped");
}

TEST_F(EventComparisonTest, WhatNothingWasReceivedAfterIsLate) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1);
  Take({a, b}, {Received(a)});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(b), "late");
}

TEST_F(EventComparisonTest, WhatIsBehindArrivingEventsIsInFlight) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1), c = Emitted(3, "c", 1);
  Take({a, b, c}, {Received(a)});
  comparison_.BeginWait();
  Take({b}, {Received(b)});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(c), "in_flight");
  EXPECT_FALSE(IsDifference("in_flight"));
  EXPECT_TRUE(IsUnaccounted("in_flight"));
}

TEST_F(EventComparisonTest, OfTheEventsThatAReaderIsBehindTheFirstOnesAreWaitedFor) {
  constexpr int kAwaited = EventComparison::kMostAwaited;
  const SourceEvent lost = Emitted(1, "lost", 1);
  Take({lost}, {});
  Take({Emitted(2, "a", 2)}, {Received(Emitted(2, "a", 2))});
  for (int place = 3; place < 3 + kAwaited; ++place) Take({Emitted(place, "a", place)}, {});
  comparison_.LeaveOutTail();
  EXPECT_EQ(comparison_.left_out().count, 0);
  for (int place = 3 + kAwaited; place < 13 + kAwaited; ++place) {
    Take({Emitted(place, "a", place, place % 2 == 0 ? "published" : "pending")}, {});
  }
  comparison_.LeaveOutTail();
  EXPECT_EQ(comparison_.left_out().place, 2 + kAwaited);
  EXPECT_EQ(comparison_.left_out().count, 10);
  EXPECT_EQ(comparison_.left_out().occurred, kNow + 3 + kAwaited);
  EXPECT_THAT(comparison_.unsettled(), SizeIs(1 + kAwaited));
  comparison_.Finish("");
  EXPECT_EQ(KindOf(lost), "missing");
  EXPECT_EQ(Count("late"), kAwaited);
}

TEST_F(EventComparisonTest, ABacklogOfAnyLengthIsLeftOut) {
  comparison_.AllowLeftOut();
  constexpr int kMany = EventComparison::kMostUnsettled + 10;
  for (int place = 1; place <= kMany; ++place) Take({Emitted(place, "a", place, "pending")}, {});
  Take({Emitted(kMany + 1, "b", 1)}, {Received(Emitted(kMany + 1, "b", 1))});
  EXPECT_FALSE(comparison_.full());
  EXPECT_EQ(comparison_.left_out().count, kMany - EventComparison::kMostKept);
  EXPECT_EQ(comparison_.left_out().place, EventComparison::kMostKept);
}

TEST_F(EventComparisonTest, NothingIsMissingWhileTheSubscriptionIsNotPulled) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1);
  Take({a, b}, {Received(b)});
  comparison_.Finish("no puller reports on it");
  EXPECT_EQ(KindOf(a), "late");
  EXPECT_EQ(comparison_.unsettled().at(a.id).detail, "no puller reports on it");
}

TEST_F(EventComparisonTest, WhatAPauseHoldsIsLateWithTheLaterEventsOfItsKey) {
  SourceEvent held = Emitted(2, "a", 2);
  held.event_type = "order.paid";
  const SourceEvent before = Emitted(1, "a", 1), after = Emitted(3, "a", 3),
                    other = Emitted(4, "b", 1), last = Emitted(5, "a", 4);
  Take({before, held, after, other, last}, {Received(last)});
  comparison_.Finish("", {{"order.paid", "handler 1 is paused"}});
  EXPECT_EQ(KindOf(before), "skipped");
  EXPECT_EQ(KindOf(held), "late");
  EXPECT_EQ(KindOf(after), "late");
  EXPECT_EQ(comparison_.unsettled().at(after.id).detail, "handler 1 is paused");
  EXPECT_EQ(KindOf(other), "missing");
}

TEST_F(EventComparisonTest, AHoleIsKeptWithItsReasonAndIsNoDifference) {
  const SourceEvent a = Emitted(1, "a", 1);
  Arrival arrival = Received(a, "hole");
  arrival.detail = "discarded by alice: test data";
  Take({a}, {arrival});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "hole");
  EXPECT_EQ(comparison_.unsettled().at(a.id).detail, "discarded by alice: test data");
  EXPECT_FALSE(IsDifference("hole"));
  EXPECT_FALSE(IsUnaccounted("hole"));
}

TEST_F(EventComparisonTest, WhatIsNotPublishedIsPendingOrParked) {
  const SourceEvent a = Emitted(1, "a", 1, "pending"), b = Emitted(2, "b", 1, "parked");
  Take({a, b, Emitted(3, "c", 1)}, {Received(Emitted(3, "c", 1))});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "pending");
  EXPECT_EQ(KindOf(b), "parked_at_source");
  EXPECT_FALSE(IsDifference("pending"));
  EXPECT_TRUE(IsDifference("parked_at_source"));
}

TEST_F(EventComparisonTest, OutcomesWithoutAnEffectStayUnsettledAndADiscardedEventDoesNot) {
  const SourceEvent a = Emitted(1, "a", 1), b = Emitted(2, "b", 1), c = Emitted(3, "c", 1);
  Take({a, b, c}, {Received(a, "rejected"), Received(b, "parked"), Received(c, "discarded")});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "rejected");
  EXPECT_EQ(KindOf(b), "parked");
  EXPECT_EQ(KindOf(c), "settled");
  EXPECT_EQ(Count("discarded"), 1);
}

TEST_F(EventComparisonTest, AnOutcomeThatIsNotKnownIsNotTakenForAnEffect) {
  const SourceEvent a = Emitted(1, "a", 1);
  Take({a}, {Received(a, "postponed")});
  EXPECT_EQ(KindOf(a), "postponed");
  EXPECT_TRUE(IsDifference("postponed"));
}

TEST_F(EventComparisonTest, WhatWasNeverSentOnPurposeIsCountedAndNotMissing) {
  const SourceEvent a = Emitted(1, "a", 1, "expired"), b = Emitted(2, "a", 2, "discarded");
  Take({a, b, Emitted(3, "a", 3)}, {Received(Emitted(3, "a", 3))});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "settled");
  EXPECT_EQ(Count("expired"), 1);
  EXPECT_EQ(Count("discarded"), 1);
}

TEST_F(EventComparisonTest, OtherFieldsInTheInboxAreADifference) {
  const SourceEvent a = Emitted(1, "a", 1);
  Arrival arrival = Received(a);
  arrival.version = 2;
  Take({a}, {arrival});
  EXPECT_EQ(KindOf(a), "altered");
  EXPECT_EQ(comparison_.unsettled().at(a.id).detail, "version was emitted as 1 and received as 2");
}

TEST_F(EventComparisonTest, EventsFromBeforeTheRecordingAreNotMissing) {
  SourceEvent old = Emitted(1, "a", 1);
  old.occurred = kNow - 2 * kHour;
  Take({old, Emitted(2, "b", 1)}, {Received(Emitted(2, "b", 1))});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(old), "unrecorded");
  EXPECT_FALSE(IsDifference("unrecorded"));
}

TEST_F(EventComparisonTest, AnyNumberOfEventsFromBeforeTheRecordingIsCounted) {
  constexpr int kMany = EventComparison::kMostUnsettled + 10;
  for (int place = 1; place <= kMany; ++place) {
    SourceEvent old = Emitted(place, "a", place);
    old.occurred = kNow - 2 * kHour - place;
    Take({old}, {});
  }
  comparison_.Finish("");
  EXPECT_FALSE(comparison_.full());
  EXPECT_EQ(Count("unrecorded"), kMany);
  EXPECT_EQ(comparison_.unrecorded().count, kMany);
  EXPECT_EQ(comparison_.unrecorded().last, kNow - 2 * kHour - 1);
}

TEST_F(EventComparisonTest, AnEventWithAnOldTimeAndANewIdIsMissing) {
  SourceEvent imported = Emitted(1, "a", 1);
  imported.occurred = kNow - 2 * kHour;
  char id[40];
  const auto millis = static_cast<unsigned long long>(kNow / 1000);
  std::snprintf(id, sizeof id, "%08llx-%04llx-7000-8000-000000000001", millis >> 16,
                millis & 0xFFFF);
  imported.id = id;
  Take({imported, Emitted(2, "b", 1)}, {Received(Emitted(2, "b", 1))});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(imported), "missing");
}

TEST_F(EventComparisonTest, WhatWasMissingIsSettledWhenItArrives) {
  const SourceEvent a = Emitted(1, "a", 1);
  comparison_.Resume({{a, "missing", "", false, false}}, 5);
  Arrivals arrivals{{a.id, Received(a)}};
  comparison_.TakeAgain({a.id}, {a}, arrivals);
  comparison_.Finish("");
  EXPECT_THAT(comparison_.unsettled(), IsEmpty());
  EXPECT_EQ(Count("missing"), 0);
  EXPECT_EQ(Count("applied"), 1);
}

TEST_F(EventComparisonTest, WhatWasMissingStaysSoWhateverItsTimeAndIsGoneWithTheRetention) {
  SourceEvent a = Emitted(1, "a", 1);
  a.occurred = 1;
  comparison_.Resume({{a, "late", "", false, false}}, 5);
  comparison_.TakeAgain({a.id}, {a}, {});
  comparison_.Finish("");
  EXPECT_EQ(KindOf(a), "missing");
  comparison_.TakeAgain({a.id}, {}, {});
  EXPECT_THAT(comparison_.unsettled(), IsEmpty());
  EXPECT_EQ(Count("gone"), 1);
}

TEST_F(EventComparisonTest, AnEventThatIsReadTwiceCountsOnce) {
  const SourceEvent a = Emitted(1, "a", 1);
  comparison_.Resume({{a, "late", "", false, false}}, 0);
  Take({a, Emitted(2, "b", 1)}, {Received(Emitted(2, "b", 1))});
  comparison_.Finish("");
  EXPECT_EQ(Count("missing"), 1);
  EXPECT_THAT(comparison_.unsettled(), SizeIs(1));
}

TEST_F(EventComparisonTest, AnEventThatIsSettledAndThenReadCountsOnce) {
  const SourceEvent a = Emitted(1, "a", 1);
  comparison_.Resume({{a, "late", "", false, false}}, 0);
  comparison_.TakeAgain({a.id}, {a}, {{a.id, Received(a)}});
  Take({a}, {Received(a)});
  EXPECT_EQ(Count("applied"), 1);
}

TEST(TallyTest, HoursAreThoseOfTheEventsAndTheirNumberIsBounded) {
  Tally tally;
  tally.Add("applied", 2 * kHour + 5);
  tally.Add("applied", 2 * kHour + 6);
  tally.Add("stale", 0);
  EXPECT_EQ(tally.hours().at(2 * kHour).at("applied"), 2);
  EXPECT_EQ(tally.hours().at(0).at("stale"), 1);
  for (int64_t hour = 10; hour < 20'000; ++hour) tally.Add("applied", hour * kHour);
  EXPECT_EQ(tally.hours().size(), Tally::kMostHours);
  EXPECT_EQ(tally.total().at("applied"), 2 + 19'990);
}

}  // namespace
}  // namespace postbox::cli
