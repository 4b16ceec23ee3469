#include "trainperf/probe/look_pace.h"

#include <gtest/gtest.h>

namespace trainperf {
namespace {

constexpr int64_t kPeriod = 16'000'000, kQuick = kPeriod / 4;
constexpr int64_t kCheap = 20'000, kDear = 100'000, kVeryDear = 1'000'000;  // of a look

// The pace after so many looks, each of which cost `look_ns`, and none met the thread.
LookPace After(int64_t looks) {
  LookPace pace;
  for (int64_t i = 0; i < looks; ++i) pace.Looked(false);
  return pace;
}

int64_t Next(const LookPace& pace, int64_t looks, int64_t look_ns) {
  return pace.NextNs(kPeriod, (looks + 1) * look_ns);
}

TEST(LookPace, AFewAtOnceWhateverTheyCost) {
  EXPECT_EQ(Next(After(0), 0, kVeryDear), kQuick);
  EXPECT_EQ(Next(After(LookPace::kAtOnce - 1), LookPace::kAtOnce - 1, kVeryDear), kQuick);
  EXPECT_GT(Next(After(LookPace::kAtOnce), LookPace::kAtOnce, kVeryDear), kQuick);
}

TEST(LookPace, ThenAsOftenAsIsPaidFor) {
  EXPECT_EQ(Next(After(20), 20, kDear), 25'000'000);  // 0.1 ms of 25 ms: 0.4 %
  EXPECT_EQ(Next(After(20), 20, kCheap), 5'000'000);  // no more often than four times
  EXPECT_EQ(Next(After(20), 20, kCheap / 2), kQuick);
  EXPECT_EQ(Next(After(20), 20, kVeryDear), kPeriod * 5 / 2);                   // no less often than that
  EXPECT_EQ(Next(After(LookPace::kFirst), LookPace::kFirst, kCheap), kPeriod);  // no more often than asked for
  EXPECT_EQ(Next(After(LookPace::kFirst), LookPace::kFirst, kDear), 25'000'000);
}

TEST(LookPace, QuicklyUntilTheLoopIsMetOnTheCpu) {
  LookPace pace = After(1000);
  pace.Looked(true);  // before the loop began: counts for nothing
  pace.MeetOnCpu();
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Next(pace, 1001, kDear), kQuick) << i;
    pace.Looked(false);
  }
  pace.Looked(true);
  EXPECT_EQ(Next(pace, 1032, kDear), 25'000'000);
  pace.Looked(false);
  EXPECT_EQ(Next(pace, 1033, kDear), 25'000'000);  // met is met
}

TEST(LookPace, AThreadThatNeverRunsIsNotLookedAtQuicklyForEver) {
  LookPace pace = After(1000);
  pace.MeetOnCpu();
  for (int i = 0; i < LookPace::kMostToMeet; ++i) pace.Looked(false);
  EXPECT_EQ(Next(pace, 1048, kDear), 25'000'000);
}

}  // namespace
}  // namespace trainperf
