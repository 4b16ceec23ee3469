// The device's part of steps: what was busy, how long it idled, and which host cause each idle gap gets.

#include "trainperf/timeline/device_lane.h"

#include <initializer_list>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

// A step whose device work the host launches in time: 10 kernels of 1 ms, of which the host is 8 ms ahead at the end.
void HealthyStep(Script& loop) {
  loop.Begin(Bracket::kFetch, kTrain).Cpu(100_us).End(Bracket::kFetch, kFetchedBatch);
  for (int i = 0; i < 5; ++i) loop.Launch(10_us, 1_ms).Cpu(190_us);
  loop.Begin(Bracket::kBackward);
  for (int i = 0; i < 5; ++i) loop.Launch(10_us, 1_ms).Cpu(190_us);
  loop.End(Bracket::kBackward);
  loop.Sync();
}

// ---- Steps that are not traced

TEST(DeviceLane, OfUntracedStepsNothingIsToldAndNobodyWaits) {
  Script loop;
  loop.RunStep();
  for (int i = 0; i < 300; ++i) {
    HealthyStep(loop);
    loop.RunStep();
  }
  const int64_t off_ns = loop.now();
  loop.timeline().BeginUntraced(off_ns);
  for (int i = 0; i < 300; ++i) loop.Cpu(10_ms).RunStep();
  // Where the device is not looked at, nothing is to come that a step would have to wait for.
  loop.timeline().AdvanceTo(loop.now());
  EXPECT_GT(loop.sink().count, 590);
  const int64_t on_ns = loop.now();
  for (int i = 0; i < 10; ++i) {
    const int64_t start_ns = loop.now();
    HealthyStep(loop);
    if (i == 0) loop.timeline().EndUntraced(0, on_ns, start_ns + 2_ms);  // in the middle of it
    loop.RunStep();
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 610u);
  for (size_t i = 0; i < 610; ++i) {
    const DeviceStep& device = loop.steps()[i].device();
    EXPECT_EQ(device.untraced, i >= 300 && i <= 600) << i;
    EXPECT_FALSE(device.incomplete) << i;
    EXPECT_EQ(device.kernels, device.untraced ? 0 : 10) << i;
  }
  EXPECT_EQ(loop.steps()[450].device().busy_ns, 0);
  EXPECT_GT(loop.steps()[450].device().lead_ns_median, 0);  // of the run so far
  EXPECT_EQ(loop.steps()[450].device().lead_ns_median, loop.steps()[299].device().lead_ns_median);
}

TEST(DeviceLane, AWindowWithoutWorkIsNoneAndWindowsAreToldBeforeTheirWork) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  // Two windows are over before anything of the first has come.
  const int64_t start_ns = loop.now();
  loop.timeline().BeginUntraced(start_ns);
  loop.timeline().BeginUntraced(start_ns + 60_ms);
  loop.timeline().BeginUntraced(start_ns + 120_ms);
  for (int i = 0; i < 9; ++i) {
    const int64_t step_ns = loop.now();
    if (i == 4) loop.timeline().EndUntraced(0, start_ns + 70_ms, step_ns);  // of the window from 70 to 120 ms
    HealthyStep(loop);
    loop.Cpu(step_ns + 20_ms - loop.now());
    loop.RunStep();
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  std::vector<size_t> traced;
  for (size_t i = 0; i < 10; ++i) {
    if (!loop.steps()[i].device().untraced) traced.push_back(i);
  }
  EXPECT_EQ(traced, (std::vector<size_t>{0, 5, 6}));
}

// ---- Busy

TEST(DeviceLane, BusyIsTheUnionOverStreamsSplitAtSteps) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 1_ms, t0 + 3_ms, 0, 0, 0, 7).Kernel(t0 + 2_ms, t0 + 4_ms, 0, 0, 0, 8);  // overlap on two streams
  loop.Kernel(t0 + 9_ms, t0 + 12_ms);                                                      // crosses the border
  loop.Kernel(t0 + 9_ms + 500_us, t0 + 9_ms + 600_us, 0, 0, 0, 9);                         // within the former
  loop.Call(HostCall::kLaunchKernel, 10_us, 99).Cpu(10_ms - 10_us).RunStep().Cpu(5_ms).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 2u);
  EXPECT_EQ(loop.steps()[0].device().busy_ns, 4_ms);
  EXPECT_EQ(loop.steps()[0].device().kernel_ns, 4_ms);
  EXPECT_EQ(loop.steps()[0].device().kernels, 4);
  EXPECT_EQ(loop.steps()[0].idle(), 6_ms);
  EXPECT_EQ(loop.steps()[1].device().busy_ns, 2_ms);
  EXPECT_EQ(loop.steps()[1].device().kernels, 0);
  EXPECT_TRUE(loop.steps()[0].feeds_device);
}

TEST(DeviceLane, TwoDevicesApart) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 1_ms, t0 + 2_ms, 0, 0, 1).Kernel(t0 + 3_ms, t0 + 7_ms, 0, 0, 0);
  loop.Call(HostCall::kLaunchKernel, 10_us, 99).Cpu(10_ms - 10_us).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].device(0).busy_ns, 4_ms);
  EXPECT_EQ(loop.steps()[0].device(1).busy_ns, 1_ms);
}

TEST(DeviceLane, MoreDevicesThanAreToldOfAreCounted) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  for (uint32_t device = 0; device < kMaxDevices + 2; ++device) loop.Kernel(t0 + 1_ms, t0 + 2_ms, 0, 0, device);
  loop.Cpu(10_ms).RunStep();
  EXPECT_EQ(loop.timeline().refused_ops(), 2);
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].devices.size(), size_t{kMaxDevices});
  EXPECT_EQ(loop.steps()[0].device(kMaxDevices - 1).busy_ns, 1_ms);
}

TEST(DeviceLane, CopiesAndCollectivesAreExposedWhereNoKernelRuns) {
  NameTable names(10);
  const uint32_t gemm = names.Intern("ampere_sgemm_128x64_nn");
  const uint32_t nccl = names.Intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)");
  Script loop;
  loop.timeline().SetNames(&names);
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 2_ms, t0 + 5_ms, 0, gemm).Kernel(t0 + 4_ms, t0 + 8_ms, 0, nccl, 0, 20);
  loop.Copy(t0 + 1_ms, t0 + 3_ms, 0, CopyDirection::kHostToDevice, MemoryKind::kPageable, MemoryKind::kDevice, 1 << 20);
  loop.Copy(t0 + 9_ms, t0 + 9_ms + 2_us, 0, CopyDirection::kDeviceToHost, MemoryKind::kDevice, MemoryKind::kPinned, 4);
  loop.Call(HostCall::kLaunchKernel, 10_us, 99).Cpu(10_ms - 10_us).RunStep();
  loop.Finish();
  const DeviceStep& d = loop.steps()[0].device();
  EXPECT_EQ(d.busy_ns, 7_ms + 2_us);
  EXPECT_EQ(d.kernel_ns, 6_ms);
  EXPECT_EQ(d.collective_ns, 4_ms);
  EXPECT_EQ(d.exposed_collective_ns, 3_ms);
  EXPECT_EQ(d.copy_ns, 2_ms + 2_us);
  EXPECT_EQ(d.exposed_copy_ns, 1_ms + 2_us);
  EXPECT_EQ(d.copies, 2);
  ASSERT_EQ(d.copy_sums.size(), 2u);
  EXPECT_EQ(d.copy_sums[0].exposed_ns, 1_ms);
  EXPECT_EQ(d.copy_sums[0].bytes, 1 << 20);
  EXPECT_EQ(d.copy_sums[0].small, 0);
  EXPECT_EQ(d.copy_sums[1].small, 1);
  ASSERT_EQ(d.kernel_sums.size(), 2u);
  EXPECT_EQ(d.kernel_sums[0].name, gemm);
  EXPECT_EQ(d.kernel_sums[0].ns, 3_ms);
}

TEST(DeviceLane, AnOperationThatOutlastsManyStepsIsInEachOfThem) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 500_us, t0 + 95_ms + 500_us);
  for (int i = 0; i < 10; ++i) loop.Call(HostCall::kLaunchKernel, 10_us, 99).Cpu(10_ms - 10_us).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].device().busy_ns, 9_ms + 500_us);
  for (size_t i = 1; i < 9; ++i) EXPECT_EQ(loop.steps()[i].device().busy_ns, 10_ms);
  EXPECT_EQ(loop.steps()[9].device().busy_ns, 5_ms + 500_us);
}

TEST(DeviceLane, StepsCloseBehindTheWatermark) {
  Script loop;
  loop.RunStep();
  for (int i = 0; i < 600; ++i) {
    HealthyStep(loop);
    loop.RunStep();
  }
  loop.timeline().AdvanceTo(loop.now());
  EXPECT_GT(loop.sink().count, 500);
  EXPECT_LT(loop.sink().count, 600);
  loop.timeline().AdvanceTo(loop.now() + 3'000_ms);
  EXPECT_EQ(loop.sink().count, 600);
}

// 300 steps, of which the last leaves the device 10 kernels of 8 ms; then nothing but looks at a thread that waits.
void LoopThatEndsWithWorkInFlight(Script& loop) {
  for (int i = 0; i < 300; ++i) loop.Fetch(kTrain, 100_us).Launch(10_us, 1_ms).Backward(5_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 100_us);
  for (int i = 0; i < 10; ++i) loop.Launch(10_us, 8_ms);
  loop.Backward(5_ms).Optimizer(kAdam, 1_ms);
}

void WaitForTheDevice(Script& loop) {
  while (loop.now() < loop.stream_free_ns() + 100_ms) {
    loop.Blocked(1_ms).Sample(SampleState::kBlocked, 1_ms);
    loop.timeline().AdvanceTo(loop.now());
  }
  loop.Finish();
}

TEST(DeviceLane, WorkThatOutlastsTheLoopIsSplitAtItsLastMark) {
  Script loop;
  LoopThatEndsWithWorkInFlight(loop);
  const int64_t end = loop.now();
  WaitForTheDevice(loop);
  const Step& last = loop.steps().back();
  EXPECT_EQ(last.end_ns, end);
  EXPECT_FALSE(last.device().incomplete);
  EXPECT_GT(last.device().busy_ns, 0.9 * static_cast<double>(last.wall()));
}

TEST(DeviceLane, WorkThatOutlastsTheWatchIsSplitAtItsEnd) {
  Script loop;
  LoopThatEndsWithWorkInFlight(loop);
  loop.Cpu(1_ms).WatchEnds();
  const int64_t end = loop.now();
  WaitForTheDevice(loop);
  const Step& last = loop.steps().back();
  EXPECT_EQ(last.end_ns, end);
  EXPECT_FALSE(last.device().incomplete);
}

// What is read of the device while a step lasts changes nothing of it.
TEST(DeviceLane, AStepOfManyMarksIsOne) {
  Script loop;
  loop.RunStep();
  for (int i = 0; i < 5000; ++i) {
    loop.Begin(Bracket::kLogging).Launch(10_us, 800_us).Cpu(990_us).End(Bracket::kLogging);
    loop.timeline().AdvanceTo(loop.now());
  }
  loop.RunStep().Finish();
  ASSERT_EQ(loop.steps().size(), 1u);
  const DeviceStep& device = loop.steps()[0].device();
  EXPECT_FALSE(device.incomplete);
  EXPECT_EQ(device.kernels, 5000);
  EXPECT_EQ(device.busy_ns, 5000 * 800_us);
  ASSERT_EQ(device.kernel_sums.size(), 1u);
  ASSERT_EQ(loop.steps()[0].calls.size(), 1u);
  EXPECT_EQ(loop.steps()[0].calls[0].count, 5000);
}

TEST(DeviceLane, AStepOfManyMarksIsBounded) {
  DeviceLane lane(100);
  lane.OpenCell(0);
  for (int64_t at = 10_ms; at < 10'000_ms; at += 10_ms) {
    DeviceOp op{};
    op.start_ns = at - 5_ms;
    op.end_ns = at - 4_ms;
    lane.OnOp(op);
    lane.Settle(at, at - 6_ms);
  }
  EXPECT_EQ(lane.cells(), 2u);
}

// ---- Idle

TEST(DeviceLane, StarvedByTheLoader) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);  // ends with the device at rest
  loop.RunStep();
  loop.Fetch(kTrain, 30_ms);
  for (int i = 0; i < 3; ++i) loop.Launch(10_us, 5_ms);
  loop.Backward(1_ms).Cpu(15_ms).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  EXPECT_EQ(step.idle(Cause::kDataWait), 30_ms);
  EXPECT_EQ(step.device().starved_gaps, 1);
  // After the fetch, the launch itself and its latency; after the last kernel, the loop's end without more work.
  EXPECT_EQ(step.idle() - 30_ms, step.wall() - step.device().busy_ns - 30_ms);
}

TEST(DeviceLane, StarvedByAGilHolderIsExactAndNamesIt) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  loop.Launch(10_us, 1_ms).Cpu(200_us).GilWait(20_ms, 9, 33).Cpu(100_us).Launch(10_us, 1_ms).Backward(10_us).Sync();
  loop.RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  // The first kernel ends 10 us + 5 us + 1 ms after the start; the wait goes on from 210 us to 20.21 ms.
  EXPECT_EQ(step.idle(Cause::kGilWait), 20'210_us - 1'015_us);
  int64_t ns = 0;
  for (const Detail& detail : loop.Details(DetailKind::kIdleGilWait)) {
    EXPECT_EQ(detail.thread, 9u);
    EXPECT_EQ(detail.stack, 33u);
    ns += detail.ns;
  }
  EXPECT_EQ(ns, step.idle(Cause::kGilWait));
}

TEST(DeviceLane, CallsAndPhasesInAGapAreNamed) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  loop.Call(HostCall::kAlloc, 3_ms);
  loop.Begin(Bracket::kCheckpoint).Blocked(4_ms).End(Bracket::kCheckpoint);
  loop.Begin(Bracket::kLogging).Blocked(2_ms).End(Bracket::kLogging);
  loop.Begin(Bracket::kGc, 0, 2).Cpu(5_ms).End(Bracket::kGc);
  loop.Call(HostCall::kModuleLoad, 6_ms);
  loop.Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  EXPECT_EQ(step.idle(Cause::kCudaAlloc), 3_ms);
  EXPECT_EQ(step.idle(Cause::kCheckpoint), 4_ms);
  EXPECT_EQ(step.idle(Cause::kLogging), 2_ms);
  EXPECT_EQ(step.idle(Cause::kGc), 5_ms);
  EXPECT_EQ(step.idle(Cause::kModuleLoad), 6_ms);
}

TEST(DeviceLane, ADescheduledHostStarvesTheDevice) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  // The wait was in this stretch, of which 90 % is off the CPU.
  loop.Launch(10_us, 100_us).Cpu(190_us).Descheduled(9_ms).Cpu(800_us).Backward(10_us).Launch(10_us, 1_ms).Sync();
  loop.RunStep();
  loop.Finish();
  EXPECT_NEAR(static_cast<double>(loop.steps()[1].idle(Cause::kDescheduled)), 9e6, 5e5);
}

TEST(DeviceLane, AfterASyncTheRefillIsTheSyncs) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  loop.Launch(10_us, 1_ms).Sync();  // .item()
  loop.Cpu(500_us).Sample(SampleState::kPython).Launch(10_us, 1_ms).Backward(10_us).Sync();
  loop.RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  // From the first kernel's end to the second's launch call's end; then the launch's latency.
  EXPECT_EQ(step.idle(Cause::kGpuWait), 10_us + 2_us + 500_us + 10_us + 5_us - 5_us + 2_us);
  EXPECT_EQ(step.idle(Cause::kPython), 0);
}

TEST(DeviceLane, AfterASyncAStallKeepsItsOwnName) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  loop.Fetch(kTrain, 30_ms).Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[1].idle(Cause::kDataWait), 30_ms);
}

TEST(DeviceLane, QueuedWorkIsNeverTheHostsFault) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Call(HostCall::kLaunchKernel, 10_us, 1).Call(HostCall::kLaunchKernel, 10_us, 2);
  loop.Call(HostCall::kLaunchKernel, 10_us, 3);
  loop.Kernel(t0 + 100_us, t0 + 1_ms, 1);
  loop.Kernel(t0 + 1_ms + 3_us, t0 + 2_ms, 2);  // kernel to kernel
  loop.Kernel(t0 + 162_ms, t0 + 163_ms, 3);     // waited 160 ms in the queue for something that nobody sees
  loop.Begin(Bracket::kFetch, kTrain).Blocked(170_ms).End(Bracket::kFetch, kFetchedBatch).Backward(1_ms).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[0];
  EXPECT_EQ(step.device().between_ns, 3_us);
  EXPECT_GE(step.idle(Cause::kUnknown), 160_ms);
  EXPECT_LE(step.idle(Cause::kDataWait), 8_ms);  // after the last kernel
}

TEST(DeviceLane, TheKernelsOfOneGraphShareItsLaunch) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Call(HostCall::kLaunchGraph, 20_us, 5);
  for (int i = 0; i < 10; ++i) loop.Kernel(t0 + 50_us + i * 12_us, t0 + 60_us + i * 12_us, 5);
  loop.Cpu(980_us).RunStep();
  loop.Finish();
  const DeviceStep& d = loop.steps()[0].device();
  EXPECT_EQ(d.kernels, 10);
  EXPECT_EQ(d.launches, 1);
  EXPECT_EQ(d.starved_gaps, 1);
  EXPECT_EQ(d.between_ns, 18_us);
}

TEST(DeviceLane, WorkFromBeforeTheRecordingIsWork) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 1_ms, t0 + 4_ms, 17);  // its launch was never seen
  loop.Call(HostCall::kLaunchKernel, 10_us, 900).Cpu(10_ms - 10_us).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[0];
  EXPECT_EQ(step.device().busy_ns, 3_ms);
  EXPECT_FALSE(step.device().incomplete);
  EXPECT_GE(step.idle(Cause::kUnknown), 1_ms);
}

TEST(DeviceLane, ALostLaunchMakesTheStepIncomplete) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Kernel(t0 + 1_ms, t0 + 4_ms, 905);
  loop.Call(HostCall::kLaunchKernel, 10_us, 900).Cpu(10_ms - 10_us).RunStep();
  loop.Finish();
  EXPECT_TRUE(loop.steps()[0].device().incomplete);
}

TEST(DeviceLane, TheKernelMayStartBeforeItsLaunchByTheClocks) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  loop.Fetch(kTrain, 5_ms);
  loop.Kernel(t0 + 5_ms - 8_us, t0 + 6_ms, 1);  // 8 us of skew, by which it even ends its gap early
  loop.Call(HostCall::kLaunchKernel, 10_us, 1).Backward(1_ms).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].idle(Cause::kDataWait), 5_ms - 8_us);
  EXPECT_EQ(loop.steps()[0].device().starved_gaps, 1);
}

TEST(DeviceLane, IdleBeforeTheFirstAndAfterTheLastWork) {
  Script loop;
  loop.RunStep();
  loop.Fetch(kTrain, 5_ms).Launch(10_us, 1_ms).Backward(10_us).Sync();
  loop.Begin(Bracket::kCheckpoint).Blocked(7_ms).End(Bracket::kCheckpoint).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[0];
  EXPECT_EQ(step.idle(Cause::kDataWait), 5_ms);
  EXPECT_EQ(step.idle(Cause::kCheckpoint), 7_ms);
  EXPECT_EQ(step.device().busy_ns, 1_ms);
}

TEST(DeviceLane, AGapIsSplitWhereTheStepEnds) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.Begin(Bracket::kCheckpoint).Blocked(3_ms).End(Bracket::kCheckpoint);
  loop.RunStep();
  loop.Fetch(kTrain, 4_ms).Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].idle(Cause::kCheckpoint), 3_ms);
  EXPECT_EQ(loop.steps()[1].idle(Cause::kDataWait), 4_ms);
  EXPECT_EQ(loop.steps()[1].idle(Cause::kCheckpoint), 0);
}

// A device that lags a whole step behind its host: the windows show another step's kernels, and are right so.
TEST(DeviceLane, ALaggingDeviceIsQueuedWork) {
  Script loop;
  loop.RunStep();
  for (int step = 0; step < 40; ++step) {
    for (int i = 0; i < 10; ++i) loop.Launch(10_us, 1_ms);
    loop.Backward(100_us);
    if (loop.stream_free_ns() - loop.now() > 15_ms) {
      loop.Call(HostCall::kQueueFull, loop.stream_free_ns() - loop.now() - 12_ms);
    }
    loop.RunStep();
  }
  loop.Finish();
  int64_t depth = 0;
  for (const Step& step : loop.steps()) {
    if (step.index < 5 || step.index > 35) continue;
    EXPECT_EQ(step.device().busy_ns, step.wall());
    EXPECT_EQ(step.device().starved_gaps, 0);
    EXPECT_NEAR(static_cast<double>(step.mechanism(Mechanism::kGpuWait)) / static_cast<double>(step.wall()), 0.98,
                0.03);
    depth += step.device().queue_depth;
  }
  EXPECT_NEAR(static_cast<double>(depth) / 31, 12, 3);
}

TEST(DeviceLane, LaunchBoundIsLaunch) {
  Script loop;
  loop.RunStep();
  loop.Cpu(1_ms).Sample(SampleState::kNative).Backward(10_us).RunStep();
  for (int i = 0; i < 100; ++i) loop.Launch(8_us, 3_us, 2_us).Cpu(12_us);
  loop.Backward(10_us).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  EXPECT_EQ(step.device().starved_gaps, 100);
  EXPECT_EQ(step.device().tiny_kernels, 100);
  EXPECT_GT(step.idle(Cause::kLaunch), step.wall() * 8 / 10);
  EXPECT_NEAR(static_cast<double>(step.device().lead_ns_median), 2000, 300);
  EXPECT_EQ(step.device().first_kernel_ns, 10_us);
}

TEST(DeviceLane, BackwardOnAutogradsThread) {
  Script loop;
  loop.RunStep();
  HealthyStep(loop);
  loop.RunStep();
  loop.Launch(10_us, 1_ms).Begin(Bracket::kBackward);
  loop.On(2);
  for (int i = 0; i < 50; ++i) loop.Launch(10_us, 1_ms).Cpu(90_us);
  loop.GilWait(20_ms, 9, 33);
  loop.Launch(10_us, 1_ms);
  loop.On(1).Descheduled(0).End(Bracket::kBackward).Sync().RunStep();
  loop.Finish();
  const Step& step = loop.steps()[1];
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kLaunch), 51 * 10_us);
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kNative), 49 * 90_us);
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kGilWait), 20_ms);
  EXPECT_EQ(step.idle(Cause::kGilWait), 0);  // the device had work for longer
}

TEST(DeviceLane, LateOperationsAreCountedAndTheStepAddsUp) {
  Script loop;
  loop.RunStep();
  for (int i = 0; i < 300; ++i) {
    HealthyStep(loop);
    loop.RunStep();
  }
  const int64_t end = loop.now();
  loop.timeline().AdvanceTo(end + 5'000_ms);
  DeviceOp late{};
  late.start_ns = end - 200_ms;
  late.end_ns = end - 100_ms;
  late.kind = DeviceOpKind::kKernel;
  loop.timeline().Add(late);
  loop.Cpu(6'000_ms).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.timeline().late_events(), 1);
}

TEST(DeviceLane, CallsOfMoreThreadsThanAreKeptAreOfNone) {
  DeviceLane lane(100);
  lane.OpenCell(1);
  for (uint32_t thread = 1; thread <= 3000; ++thread) {
    Event call{};
    call.kind = EventKind::kCall;
    call.what = static_cast<uint8_t>(thread % 2 == 0 ? HostCall::kLaunchKernel : HostCall::kAlloc);
    call.start_ns = 10;
    call.end_ns = 20;
    call.thread = thread;
    lane.OnCall(call);
    lane.CountCall(call);
  }
  Piece step{};
  step.start_ns = 1;
  step.end = 100;
  StepRecord record;
  DetailTable details;
  lane.CloseStep(step, {}, &record, &details);
  int64_t count = 0;
  for (const CallSum& sum : record.calls) count += sum.count;
  EXPECT_EQ(count, 3000);
  EXPECT_EQ(record.calls.size(), 1026u);
}

TEST(DeviceLane, MoreOperationsThanAreKept) {
  Script loop;
  loop.RunStep();
  const int64_t t0 = loop.now();
  const int n = 600'000;  // with no mark of the host among them
  for (int i = 0; i < n; ++i) loop.Kernel(t0 + i * 10_us, t0 + i * 10_us + 5_us);
  loop.Call(HostCall::kLaunchKernel, 10_us, 1).Cpu(n * 10_us - 10_us).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].device().kernels, n);
  EXPECT_EQ(loop.steps()[0].device().busy_ns, n * 5_us);
}

}  // namespace
}  // namespace trainperf
