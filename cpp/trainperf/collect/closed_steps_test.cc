#include "trainperf/collect/closed_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace trainperf {
namespace {

using ::testing::ElementsAre;

struct Counted : TimelineSink {
  void OnStep(const StepRecord&) override { ++steps; }
  void OnDetail(const Detail&) override { ++others; }
  void OnSpan(const Span&) override { ++others; }
  void OnFetch(const FetchRecord&) override { ++others; }
  void OnTakenBack() override { ++taken_back; }
  int steps = 0;
  int others = 0;
  int taken_back = 0;
};

class ClosedStepsTest : public ::testing::Test {
 protected:
  void Close(uint32_t flags, int64_t fetch_ns = 30, int64_t forward_ns = 70) {
    StepRecord step{};
    step.index = next_++;
    step.start_ns = 1000;
    step.end_ns = 1000 + fetch_ns + forward_ns;
    step.ns[static_cast<int>(Phase::kFetch)][static_cast<int>(Mechanism::kBlocked)] = fetch_ns;
    step.ns[static_cast<int>(Phase::kForward)][static_cast<int>(Mechanism::kNative)] = forward_ns;
    step.flags = flags;
    closed_.OnStep(step);
  }
  std::vector<int64_t> Indices(const std::vector<ClosedStep>& steps) {
    std::vector<int64_t> indices;
    for (const ClosedStep& step : steps) indices.push_back(step.index);
    return indices;
  }

  Counted sink_;
  ClosedSteps closed_{&sink_, false};
  int64_t next_ = 0;
};

TEST_F(ClosedStepsTest, PassesEverythingOn) {
  Close(0);
  closed_.OnDetail({});
  closed_.OnSpan({});
  closed_.OnFetch({});
  EXPECT_EQ(sink_.steps, 1);
  EXPECT_EQ(sink_.others, 3);
}

TEST_F(ClosedStepsTest, CausesAddUp) {
  Close(kDataStarved);
  const ClosedStep step = closed_.Recent(-1).at(0);
  EXPECT_EQ(step.causes_ns[static_cast<size_t>(Cause::kDataWait)], 30);
  EXPECT_EQ(step.causes_ns[static_cast<size_t>(Cause::kCompute)], 70);
  EXPECT_EQ(std::accumulate(step.causes_ns.begin(), step.causes_ns.end(), int64_t{0}), step.wall_ns);
}

TEST_F(ClosedStepsTest, TakesAFlaggedStepOnce) {
  Close(0);
  Close(kWarmUp | kHasCheckpoint | kIncomplete);  // marks, but none that a person is called for
  EXPECT_FALSE(closed_.waiting());
  Close(kGilContended);
  Close(0);
  Close(kHostStalled | kDataStarved);
  EXPECT_TRUE(closed_.waiting());
  EXPECT_THAT(Indices(closed_.TakeFlagged()), ElementsAre(2, 4));
  EXPECT_FALSE(closed_.waiting());
  EXPECT_TRUE(closed_.TakeFlagged().empty());
  Close(kDataStarved);
  EXPECT_THAT(Indices(closed_.TakeFlagged()), ElementsAre(5));
  EXPECT_THAT(Indices(closed_.RecentFlagged()), ElementsAre(2, 4, 5));
  EXPECT_THAT(closed_.totals().flagged, ElementsAre(2, 1, 1));
}

TEST_F(ClosedStepsTest, NativeTimeIsLaunchOnceADeviceIsFed) {
  Close(kDataStarved);
  closed_.FeedsDevice();
  Close(0);
  for (const ClosedStep& step : closed_.Recent(-1)) {
    EXPECT_EQ(step.causes_ns[static_cast<size_t>(Cause::kCompute)], 0);
    EXPECT_EQ(step.causes_ns[static_cast<size_t>(Cause::kLaunch)], 70);
  }
  EXPECT_EQ(closed_.TakeFlagged().at(0).causes_ns[static_cast<size_t>(Cause::kLaunch)], 70);
  EXPECT_EQ(closed_.totals().causes_ns[static_cast<size_t>(Cause::kLaunch)], 140);
}

TEST_F(ClosedStepsTest, RecentAfter) {
  for (int i = 0; i < 5; ++i) Close(0);
  EXPECT_THAT(Indices(closed_.Recent(2)), ElementsAre(3, 4));
  EXPECT_TRUE(closed_.Recent(4).empty());
}

TEST_F(ClosedStepsTest, IsBoundedAndCountsOn) {
  const int64_t many = 5000;
  for (int64_t i = 0; i < many; ++i) Close(kDataStarved);
  EXPECT_EQ(closed_.Recent(-1).size(), ClosedSteps::kMaxRecent);
  const std::vector<ClosedStep> taken = closed_.TakeFlagged();
  EXPECT_EQ(taken.size(), ClosedSteps::kMaxFlagged);
  EXPECT_EQ(taken.back().index, many - 1);
  EXPECT_EQ(closed_.totals().steps, many);
  EXPECT_EQ(closed_.totals().wall_ns, many * 100);
  EXPECT_EQ(closed_.totals().flagged[0], many);
}

}  // namespace
}  // namespace trainperf
