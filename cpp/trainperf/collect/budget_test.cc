#include "trainperf/collect/budget.h"

#include <gtest/gtest.h>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr int64_t kOneSecond = 1'000 * kMs;

TEST(Budget, JudgesAWindowAndNotTheStart) {
  Budget budget(0.01);
  EXPECT_FALSE(budget.Exceeded(1 * kMs, 500 * kMs));    // the first reading is where it counts from
  EXPECT_FALSE(budget.Exceeded(501 * kMs, 600 * kMs));  // 20 %, but the window is not over
  EXPECT_TRUE(budget.Exceeded(1001 * kMs, 600 * kMs));  // 100 ms of 1 s
}

TEST(Budget, TheFirstSecondsMayCostMore) {
  Budget budget(0.01);
  budget.Exceeded(1, 0);
  for (int second = 1; second <= 4; ++second) {
    EXPECT_FALSE(budget.Exceeded(1 + second * kOneSecond, second * 18 * kMs)) << second;
  }
  EXPECT_TRUE(budget.Exceeded(1 + 5 * kOneSecond, 5 * 18 * kMs));
}

TEST(Budget, ARunThatObeysItHasPaidBack) {
  for (const int64_t each_ms : {9, 11, 16, 25}) {
    Budget budget(0.01);
    budget.Exceeded(1, 0);
    int64_t cost_ns = 0, rate_ns = each_ms * kMs;
    for (int second = 1; second <= 60; ++second) {
      cost_ns += rate_ns;
      if (budget.Exceeded(1 + second * kOneSecond, cost_ns)) rate_ns = rate_ns * 6 / 10;
      if (second >= 25) {
        EXPECT_LE(cost_ns, second * 10 * kMs) << each_ms << " ms a second, after " << second;
      }
    }
  }
}

TEST(Budget, WhatASlowStartLeftIsKeptInPart) {
  Budget budget(0.01);
  budget.Exceeded(1, 0);
  for (int second = 1; second <= 60; ++second) EXPECT_FALSE(budget.Exceeded(1 + second * kOneSecond, second * kMs));
  EXPECT_FALSE(budget.Exceeded(1 + 61 * kOneSecond, 60 * kMs + 45 * kMs));
  EXPECT_TRUE(budget.Exceeded(1 + 62 * kOneSecond, 60 * kMs + 90 * kMs));
}

TEST(Budget, WhatWasSpentBeforeARestartDoesNotCount) {
  Budget budget(0.01);
  EXPECT_FALSE(budget.Exceeded(kOneSecond, 0));
  budget.Restart();
  EXPECT_FALSE(budget.Exceeded(2 * kOneSecond, 100 * kMs));
  EXPECT_FALSE(budget.Exceeded(3 * kOneSecond, 105 * kMs));
  EXPECT_TRUE(budget.Exceeded(4 * kOneSecond, 170 * kMs));
}

}  // namespace
}  // namespace trainperf
