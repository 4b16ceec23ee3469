// The table of launches, and what is missed in it.

#include "trainperf/probe/cuda/launch_calls.h"

#include <gtest/gtest.h>

namespace trainperf {
namespace {

Event Call(uint64_t correlation, int64_t start_ns, HostCall what = HostCall::kLaunchKernel, uint8_t flags = 0) {
  Event event{};
  event.kind = EventKind::kCall;
  event.what = static_cast<uint8_t>(what);
  event.value = static_cast<int64_t>(correlation);
  event.start_ns = start_ns;
  event.flags = flags;
  return event;
}

TEST(LaunchCallsTest, FindsACallUntilItsPlaceIsTaken) {
  LaunchCalls calls;
  int64_t start_ns = 0;
  EXPECT_FALSE(calls.Find(7, &start_ns));
  calls.Remember(Call(7, 100));
  EXPECT_TRUE(calls.Find(7, &start_ns));
  EXPECT_EQ(start_ns, 100);
  calls.Remember(Call(7 + LaunchCalls::kCalls, 200));
  calls.Remember(Call(7, 100));  // a later batch's, and older
  EXPECT_TRUE(calls.Find(7, &start_ns));
  EXPECT_EQ(start_ns, 0);
}

TEST(LaunchCallsTest, TellsLaunchesWhoseWorkWasNotSeen) {
  LaunchCalls calls;
  int64_t start_ns = 0;
  for (uint64_t id = 1; id <= 10; ++id) calls.Remember(Call(id, static_cast<int64_t>(id) * 100));
  EXPECT_EQ(calls.UnseenSince(100, 1001), 10);
  for (uint64_t id = 1; id <= 7; ++id) EXPECT_TRUE(calls.Saw(id, &start_ns));
  EXPECT_EQ(calls.UnseenSince(100, 1001), 3);
  EXPECT_EQ(calls.UnseenSince(100, 900), 1);
  EXPECT_EQ(calls.UnseenSince(100, 701), 0);
  EXPECT_TRUE(calls.Saw(10, &start_ns));
  EXPECT_EQ(calls.UnseenSince(100, 1001), 0) << "one in the midst may be launched into a graph that is being captured";
}

TEST(LaunchCallsTest, WhatLaunchesNoKernelIsNotMissed) {
  LaunchCalls calls;
  calls.Remember(Call(1, 100, HostCall::kMemcpy));
  calls.Remember(Call(2, 200, HostCall::kLaunchKernel, kCallFailed));
  EXPECT_EQ(calls.UnseenSince(0, 1000), 0);
}

}  // namespace
}  // namespace trainperf
