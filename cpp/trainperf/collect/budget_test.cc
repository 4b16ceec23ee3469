#include "trainperf/collect/budget.h"

#include <gtest/gtest.h>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

TEST(Budget, JudgesAWindowAndNotTheStart) {
  Budget budget(0.01);
  EXPECT_FALSE(budget.Exceeded(1 * kMs, 500 * kMs));    // the first reading is where it counts from
  EXPECT_FALSE(budget.Exceeded(501 * kMs, 600 * kMs));  // 20 %, but the window is not over
  EXPECT_TRUE(budget.Exceeded(1001 * kMs, 600 * kMs));  // 100 ms of 1 s
}

TEST(Budget, EachWindowCountsAnew) {
  Budget budget(0.01);
  budget.Exceeded(1 * kMs, 0);
  EXPECT_TRUE(budget.Exceeded(1001 * kMs, 100 * kMs));
  EXPECT_FALSE(budget.Exceeded(2001 * kMs, 108 * kMs));  // 8 ms of 1 s
}

TEST(Budget, WhatWasSpentBeforeARestartDoesNotCount) {
  Budget budget(0.01);
  EXPECT_FALSE(budget.Exceeded(1'000'000'000, 0));
  budget.Restart();
  EXPECT_FALSE(budget.Exceeded(2'000'000'000, 50'000'000));
  EXPECT_FALSE(budget.Exceeded(3'000'000'000, 55'000'000));
  EXPECT_TRUE(budget.Exceeded(4'000'000'000, 70'000'000));
}

}  // namespace
}  // namespace trainperf
