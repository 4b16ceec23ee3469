// Gaps of a device that another thread than the step thread ends: autograd's, one that copies batches ahead, or any.

#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/launch_table.h"
#include "trainperf/timeline/launcher_logs.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

constexpr ThreadId kMain = 1;
constexpr ThreadId kAutograd = 2;
constexpr ThreadId kOther = 5;

// A step whose device is at rest at its end.
void Step1(Script& loop) {
  loop.RunStep();
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 1_ms).On(kMain).End(Bracket::kBackward).Sync().RunStep();
}

const Step& Last(Script& loop) {
  loop.Finish();
  return loop.steps().back();
}

TEST(Launchers, AThreadThatCopiesAheadLeavesTheGapToTheFetchThatWaitsForIt) {
  Script loop;
  Step1(loop);
  loop.Begin(Bracket::kFetch, kTrain).Blocked(10_ms);
  loop.On(kOther).Launch(10_us, 1_ms).On(kMain);
  loop.End(Bracket::kFetch, kFetchedBatch).Launch(10_us, 2_ms).Backward(10_us).Sync().RunStep();
  EXPECT_NEAR(static_cast<double>(Last(loop).idle(Cause::kDataWait)), 10e6, 50e3);
}

TEST(Launchers, WhatTheThreadDidItselfComesFirst) {
  Script loop;
  Step1(loop);
  loop.On(kOther).Launch(10_us, 10_us).On(kMain).RunStep();  // from here on it is known
  loop.Begin(Bracket::kFetch, kTrain);
  loop.On(kOther).Blocked(1_ms).GilWait(4_ms, 9, 33).Call(HostCall::kPinnedAlloc, 3_ms);
  loop.Begin(Bracket::kGc, 0, 2).Cpu(2_ms).End(Bracket::kGc);
  loop.Launch(10_us, 1_ms).On(kMain);
  loop.End(Bracket::kFetch, kFetchedBatch).Launch(10_us, 2_ms).Backward(10_us).Sync().RunStep();
  const Step& step = Last(loop);
  EXPECT_EQ(step.idle(Cause::kGilWait), 4_ms);
  EXPECT_EQ(step.idle(Cause::kCudaAlloc), 3_ms);
  EXPECT_EQ(step.idle(Cause::kGc), 2_ms);
  EXPECT_NEAR(static_cast<double>(step.idle(Cause::kDataWait)), 1e6, 30e3);
  int64_t named_ns = 0;
  for (const DeviceSegment& segment : step.device().segments) {
    if (segment.what == DeviceActivity::kIdle && segment.cause == Cause::kGilWait) {
      named_ns += segment.end_ns - segment.start_ns;
    }
  }
  EXPECT_EQ(named_ns, 4_ms);
  int64_t ns = 0;
  for (const Detail& detail : loop.Details(DetailKind::kIdleGilWait)) {
    EXPECT_EQ(detail.thread, 9u);
    EXPECT_EQ(detail.stack, 33u);
    ns += detail.ns;
  }
  EXPECT_EQ(ns, 4_ms);
}

TEST(Launchers, ALoaderReadByThatThreadIsDataWait) {
  Script loop;
  Step1(loop);
  loop.On(kOther).Launch(10_us, 10_us).On(kMain).RunStep();
  loop.On(kOther).Fetch(kTrain, 8_ms).Launch(10_us, 1_ms);
  loop.On(kMain).Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  EXPECT_NEAR(static_cast<double>(Last(loop).idle(Cause::kDataWait)), 8e6, 30e3);
}

// It waits for the other thread, by a lock or for its work: nothing is said of that.
TEST(Launchers, AStepThreadThatSleepsOrWaitsForAnIdleDeviceTellsNothing) {
  for (const bool sync : {false, true}) {
    Script loop;
    Step1(loop);
    loop.Sample(SampleState::kBlocked).Blocked(10_ms);
    if (sync) loop.Call(HostCall::kStreamSync, 10_ms);
    loop.On(kOther).Launch(10_us, 1_ms).On(kMain);
    loop.Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
    const Step& step = Last(loop);
    EXPECT_EQ(step.idle(Cause::kBlockedIo), 0);
    EXPECT_LT(step.idle(Cause::kGpuWait), 100_us);
    EXPECT_GE(step.idle(Cause::kUnknown), sync ? 20_ms : 10_ms);
  }
}

TEST(Launchers, AStepThreadAtWorkIsWhatTheDeviceWaitsFor) {
  Script loop;
  loop.RunStep();
  loop.Launch(10_us, 1_ms).Backward(10_us).Cpu(1_ms).Sample(SampleState::kPython).RunStep();
  loop.Cpu(10_ms).Sample(SampleState::kPython);
  loop.On(kOther).Launch(10_us, 1_ms).On(kMain);
  loop.Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  EXPECT_NEAR(static_cast<double>(Last(loop).idle(Cause::kPython)), 10e6, 50e3);
}

TEST(Launchers, BackwardsFirstKernelAfterASyncIsRefill) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Sync().Cpu(500_us).Sample(SampleState::kPython);  // print(loss.item())
  loop.Begin(Bracket::kBackward).On(kAutograd).Launch(10_us, 1_ms);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  const Step& step = Last(loop);
  EXPECT_EQ(step.idle(Cause::kPython), 0);
  EXPECT_GE(step.idle(Cause::kGpuWait), 500_us);
}

TEST(Launchers, AutogradsCollectionsAndPythonAreNamed) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 100_us);
  loop.Begin(Bracket::kGc, 0, 2).Cpu(9_ms).End(Bracket::kGc);
  loop.Launch(10_us, 100_us).Cpu(8_ms).Hold(kAutograd, 7, 7_ms).Launch(10_us, 100_us);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  const Step& step = Last(loop);
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kGc), 9_ms);
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kPython), 7_ms);
  EXPECT_NEAR(static_cast<double>(step.idle(Cause::kGc)), 8e6, 200e3);  // the device had work at first
  EXPECT_NEAR(static_cast<double>(step.idle(Cause::kPython)), 7e6, 10e3);
}

// Where a thread stood is not that it ran there.
TEST(Launchers, AutogradsThreadSeenBesideASleepRunsNoPython) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 100_us);
  loop.Blocked(8_ms).Beside(kAutograd, 7, 7_ms).Launch(10_us, 100_us);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  EXPECT_EQ(Last(loop).at(Phase::kBackward, Mechanism::kPython), 0);
  EXPECT_EQ(loop.Details(DetailKind::kBeside).size(), 1u);
}

TEST(Launchers, ACollectionThatOutlivesItsBackwardIsNotInTheNext) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 100_us).Begin(Bracket::kGc, 0, 2);
  loop.On(kMain).End(Bracket::kBackward);
  loop.On(kAutograd).Blocked(1_ms).End(Bracket::kGc).On(kMain).Sync().RunStep();
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 100_us).Blocked(9_ms).End(Bracket::kGc).Launch(10_us, 100_us);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  EXPECT_EQ(Last(loop).at(Phase::kBackward, Mechanism::kGc), 0);
}

TEST(Launchers, ACollectionOfTheOneBeforeIsNotTheNextOnes) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 100_us).On(kMain).End(Bracket::kBackward).Sync().RunStep();
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Begin(Bracket::kGc, 0, 2);
  loop.On(kOther).Blocked(5_ms).Launch(10_us, 100_us).Blocked(2_ms).End(Bracket::kGc).Launch(10_us, 100_us);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  EXPECT_EQ(Last(loop).at(Phase::kBackward, Mechanism::kGc), 0);
}

// One process, two devices: each has a thread of autograd's, and one of them alone stands in for the step thread.
TEST(Launchers, TheSecondThreadOfAutogradIsBlamedForItsOwnWaits) {
  Script loop;
  Step1(loop);
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(kAutograd).Launch(10_us, 1_ms).On(kOther).Launch(10_us, 1_ms).GilWait(20_ms, 9, 33).Launch(10_us, 1_ms);
  loop.On(kMain).End(Bracket::kBackward).Sync().RunStep();
  const Step& step = Last(loop);
  EXPECT_NEAR(static_cast<double>(step.idle(Cause::kGilWait)), 17e6, 1e6);
}

TEST(Launchers, ACollectionWhoseEndWasLostEndsWithTheNext) {
  LauncherLogs logs;
  Event e{};
  e.thread = 5;
  const auto at = [&](EventKind kind, uint8_t what, int64_t ns) {
    e.kind = kind;
    e.what = what;
    e.start_ns = e.end_ns = ns;
    kind == EventKind::kCall ? logs.OnCall(e, 0) : logs.OnEvent(e);
  };
  at(EventKind::kCall, static_cast<uint8_t>(HostCall::kLaunchKernel), 1'000);
  at(EventKind::kBegin, static_cast<uint8_t>(Bracket::kGc), 2'000);
  at(EventKind::kBegin, static_cast<uint8_t>(Bracket::kGc), 9'000'000);
  at(EventKind::kEnd, static_cast<uint8_t>(Bracket::kGc), 9'500'000);
  EXPECT_EQ(logs.Of(5)->back().mechanism, Mechanism::kGc);
  EXPECT_EQ(logs.Of(5)->back().start_ns, 9'000'000);
}

TEST(Launchers, LogsAreInOrderAndBounded) {
  LauncherLogs logs;
  Event e{};
  e.thread = kOther;
  e.kind = EventKind::kGilWait;
  logs.OnEvent(e);
  EXPECT_EQ(logs.Of(kOther), nullptr);  // it launches nothing
  e.kind = EventKind::kCall;
  e.what = static_cast<uint8_t>(HostCall::kLaunchKernel);
  for (int64_t i = 1; i <= 50'000; ++i) {
    e.kind = EventKind::kGilWait;
    e.start_ns = i * 100'000 + 20;
    e.end_ns = e.start_ns + 30;
    logs.OnEvent(e);
    e.kind = EventKind::kCall;  // around the wait
    e.start_ns = i * 100'000;
    e.end_ns = i * 100'000 + 90;
    logs.OnCall(e, 0);
  }
  const std::vector<LauncherLogs::Entry>& entries = *logs.Of(kOther);
  EXPECT_LE(entries.size(), LauncherLogs::kMaxEntries + 4);
  int64_t waited_ns = 0, launched_ns = 0;
  for (size_t i = 1; i < entries.size(); ++i) {
    EXPECT_LE(entries[i - 1].end_ns, entries[i].start_ns);
    EXPECT_LT(entries[i].start_ns, entries[i].end_ns);
    (entries[i].mechanism == Mechanism::kGilWait ? waited_ns : launched_ns) +=
        entries[i].mechanism == Mechanism::kNative ? 0 : entries[i].end_ns - entries[i].start_ns;
  }
  EXPECT_NEAR(static_cast<double>(launched_ns) / static_cast<double>(waited_ns), 2.0, 0.01);
  logs.Drop(e.end_ns);
  EXPECT_TRUE(entries.empty());
}

// Threads come and go over a long run: who launches now is known.
TEST(Launchers, AtTheBoundTheThreadThatWasSilentLongestIsForgotten) {
  LauncherLogs logs;
  Event e{};
  e.kind = EventKind::kCall;
  e.what = static_cast<uint8_t>(HostCall::kLaunchKernel);
  constexpr ThreadId kFirst = 100;
  const auto call = [&](ThreadId thread, int64_t ns) {
    e.thread = thread;
    e.start_ns = ns;
    e.end_ns = ns + 10;
    logs.OnCall(e, 0);
  };
  for (ThreadId i = 0; i < LauncherLogs::kMaxThreads; ++i) call(kFirst + i, 1'000'000 + 1'000 * i);
  call(kFirst, 2'000'000);  // the oldest is the next one
  call(500, 2'001'000);
  EXPECT_EQ(logs.Of(500), nullptr);  // gaps that each of them ended may be open
  logs.Drop(1'500'000);
  for (ThreadId thread = 501; thread < 501 + LauncherLogs::kMaxThreads - 1; ++thread) {
    call(thread, 2'000'000 + 1'000 * thread);
    EXPECT_NE(logs.Of(thread), nullptr);
    EXPECT_EQ(logs.Of(thread - 501 + kFirst + 1), nullptr);
  }
  EXPECT_NE(logs.Of(kFirst), nullptr);
  call(600, 3'000'000);
  EXPECT_EQ(logs.Of(600), nullptr);
}

TEST(LaunchTable, TwoThreadsIdsThatMeetAreBothFound) {
  LaunchTable table;
  const auto add = [&](uint64_t correlation) {
    Launch launch;
    launch.correlation = correlation;
    table.Add(launch);
  };
  add(10);
  add(10 + LaunchTable::kSize);
  ASSERT_NE(table.Find(10), nullptr);
  ASSERT_NE(table.Find(10 + LaunchTable::kSize), nullptr);
  add(10 + 2 * LaunchTable::kSize);  // the oldest goes
  EXPECT_EQ(table.Find(10), nullptr);
  EXPECT_NE(table.Find(10 + LaunchTable::kSize), nullptr);
}

}  // namespace
}  // namespace trainperf
