#include "trainperf/probe/cuda/call_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/event/names.h"

namespace trainperf {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kUs = 1000;

CudaCallRecord Call(int64_t start_us, int64_t end_us, HostCall call, uint64_t correlation, uint32_t tid = 11) {
  return {start_us * kUs, end_us * kUs, correlation, tid, call, false, false};
}
CudaCallRecord Inner(int64_t start_us, int64_t end_us, HostCall call, uint64_t correlation, uint32_t tid = 0) {
  return {start_us * kUs, end_us * kUs, correlation, tid, call, false, true};
}

class CallFolderTest : public ::testing::Test {
 protected:
  CallFolderTest() { ThreadTable::Get().Reset(); }

  // "10..20 launch_kernel #7"
  std::vector<std::string> Take(int64_t until_us) {
    std::vector<Event> events;
    folder_.TakeUpTo(until_us * kUs, &events);
    std::vector<std::string> lines;
    for (const Event& event : events) {
      EXPECT_EQ(event.kind, EventKind::kCall);
      EXPECT_NE(event.thread, 0u);
      lines.push_back(absl::StrCat(event.start_ns / kUs, "..", event.end_ns / kUs, " ", kHostCallNames[event.what],
                                   event.value != 0 ? absl::StrCat(" #", event.value) : ""));
    }
    return lines;
  }

  CallFolder folder_;
};

TEST_F(CallFolderTest, TheDriversCallIsFoldedIntoTheRuntimes) {
  folder_.Add(Call(11, 18, HostCall::kLaunchKernel, 7));  // as CUPTI writes them: the inner one ends first
  folder_.Add(Call(10, 20, HostCall::kLaunchKernel, 7));
  folder_.Add(Call(30, 35, HostCall::kLaunchKernel, 8));
  EXPECT_THAT(Take(100), ElementsAre("10..20 launch_kernel #7", "30..35 launch_kernel #8"));
  EXPECT_EQ(folder_.folded(), 1);
}

TEST_F(CallFolderTest, LoadingIsToldApartAndTheLaunchIsWhatComesAfterIt) {
  folder_.Add(Inner(12, 900, HostCall::kModuleLoad, 7));
  folder_.Add(Call(10, 920, HostCall::kLaunchKernel, 7));
  EXPECT_THAT(Take(1000), ElementsAre("10..900 module_load", "900..920 launch_kernel #7"));
}

TEST_F(CallFolderTest, SoAreAFullQueueAndALongStretchBeforeIt) {
  folder_.Add(Call(0, 500, HostCall::kMemcpy, 9));
  folder_.Add(Inner(100, 200, HostCall::kQueueFull, 9));
  folder_.Add(Inner(300, 400, HostCall::kJit, 9));
  EXPECT_THAT(Take(1000), ElementsAre("0..100 memcpy", "100..200 queue_full", "200..300 memcpy", "300..400 jit",
                                      "400..500 memcpy #9"));
}

TEST_F(CallFolderTest, ASynchronizationRecordIsTheCallsOwn) {
  folder_.Add(Inner(10, 500, HostCall::kStreamSync, 3));
  folder_.Add(Call(9, 501, HostCall::kStreamSync, 3));
  EXPECT_THAT(Take(1000), ElementsAre("9..501 stream_sync #3"));
}

// By another clock than its call's, which may be off by a microsecond.
TEST_F(CallFolderTest, APartThatSeemsToBeginOrEndOutsideOfItsCallIsWithinIt) {
  folder_.Add(Inner(9, 900, HostCall::kModuleLoad, 7, 11));
  folder_.Add(Call(10, 920, HostCall::kLaunchKernel, 7));
  folder_.Add(Inner(999, 2001, HostCall::kStreamSync, 8));
  folder_.Add(Call(1000, 2000, HostCall::kStreamSync, 8));
  EXPECT_THAT(Take(3000), ElementsAre("10..900 module_load", "900..920 launch_kernel #7", "1000..2000 stream_sync #8"));
  EXPECT_EQ(folder_.without_thread(), 0);
}

TEST_F(CallFolderTest, APartWithoutACallFindsItsThreadOrNone) {
  folder_.Add(Inner(10, 50, HostCall::kModuleLoad, 3, 11));  // in a call that is not traced
  folder_.Add(Inner(60, 70, HostCall::kStreamSync, 99));     // nobody's
  EXPECT_THAT(Take(1000), ElementsAre("10..50 module_load"));
  EXPECT_EQ(folder_.without_thread(), 1);
}

TEST_F(CallFolderTest, WaitsForTheWatermarkAndNeverOverlapsWhatWasTold) {
  folder_.Add(Call(10, 20, HostCall::kLaunchKernel, 1));
  folder_.Add(Call(15, 120, HostCall::kStreamSync, 2));  // overlaps, as no thread's calls can: a clock's fault
  folder_.Add(Inner(30, 90, HostCall::kModuleLoad, 2));
  EXPECT_THAT(Take(100), ElementsAre("10..20 launch_kernel #1", "30..90 module_load"));
  EXPECT_EQ(folder_.pending(), 1u);
  EXPECT_THAT(Take(200), ElementsAre("90..120 stream_sync #2"));
}

TEST_F(CallFolderTest, ThreadsDoNotDisturbEachOther) {
  folder_.Add(Call(10, 100, HostCall::kDeviceSync, 1, 21));
  folder_.Add(Call(20, 30, HostCall::kLaunchKernel, 2, 22));
  EXPECT_THAT(Take(1000), ElementsAre("10..100 device_sync #1", "20..30 launch_kernel #2"));
}

TEST_F(CallFolderTest, ThreadsThatAreGoneAreForgotten) {
  constexpr int64_t kSecondUs = 1'000'000;
  for (uint32_t tid = 1; tid <= 20'000; ++tid) {
    const int64_t at_us = tid * kSecondUs / 100;
    folder_.Add(Call(at_us, at_us + 5, HostCall::kLaunchKernel, tid, tid));
    folder_.Add(Call(at_us, at_us + 5, HostCall::kLaunchKernel, tid, 30'000));  // this one lives on
    std::vector<Event> events;
    folder_.TakeUpTo((at_us + 5) * kUs, &events);
    ASSERT_EQ(events.size(), 2u);
    ASSERT_LE(folder_.threads(), CallFolder::kManyThreads + 1);
  }
}

TEST_F(CallFolderTest, WhateverComesNothingOverlapsAndTimeIsNotMade) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CallFolder folder;
    std::vector<Event> events;
    for (int batch = 0; batch < 4; ++batch) {
      for (int i = 0; i < 50; ++i) {
        const int64_t start = static_cast<int64_t>(random() % 2000), length = static_cast<int64_t>(random() % 300);
        CudaCallRecord call = Call(start, start + length, static_cast<HostCall>(random() % 14), random() % 20, 5);
        call.inner = random() % 3 == 0;
        folder.Add(call);
      }
      folder.TakeUpTo((batch + 1) * 600 * kUs, &events);
    }
    folder.TakeUpTo(INT64_MAX, &events);
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::make_pair(a.start_ns, a.end_ns) < std::make_pair(b.start_ns, b.end_ns);
    });
    for (size_t i = 0; i < events.size(); ++i) {
      ASSERT_LE(events[i].start_ns, events[i].end_ns);
      if (i > 0) {
        ASSERT_LE(events[i - 1].end_ns, events[i].start_ns);
      }
    }
    ASSERT_EQ(folder.pending(), 0u);
  }
}

}  // namespace
}  // namespace trainperf
