// Calls into the device's runtime on the host: taken out of the stretch that they lie in, and out of those of its
// clocks that ran in them.

#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

// One step of explicit borders.
template <typename Body>
Step Only(Body&& body) {
  Script loop;
  loop.RunStep();
  body(loop);
  loop.Backward(1_ms).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 1u);
  return loop.steps().at(0);
}

TEST(Calls, AreNamedByWhatTheyDo) {
  const Step step = Only([](Script& loop) {
    loop.Call(HostCall::kLaunchKernel, 1_ms).Call(HostCall::kLaunchGraph, 2_ms).Call(HostCall::kMemset, 3_ms);
    loop.Call(HostCall::kMemcpy, 4_ms).Call(HostCall::kAlloc, 5_ms).Call(HostCall::kPinnedFree, 6_ms);
    loop.Call(HostCall::kModuleLoad, 7_ms).Call(HostCall::kJit, 8_ms).Call(HostCall::kEventSync, 9_ms);
    loop.Call(HostCall::kQueueFull, 10_ms).Call(HostCall::kCpuOp, 11_ms).Call(HostCall::kPython, 12_ms);
  });
  EXPECT_EQ(step.mechanism(Mechanism::kLaunch), 6_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kCopy), 4_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kCudaAlloc), 11_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kModuleLoad), 15_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kGpuWait), 19_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kNative), 11_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kPython), 12_ms);
}

TEST(Calls, ASpinningSyncTookCpuAndABlockingOneSlept) {
  for (const bool spins : {true, false}) {
    const Step step = Only([spins](Script& loop) {
      loop.Call(HostCall::kStreamSync, 6_ms, 0, spins).Cpu(200_us).Blocked(300_us);
      loop.Sample(SampleState::kNative, 1_ms);
    });
    EXPECT_EQ(step.mechanism(Mechanism::kGpuWait), 6_ms) << spins;
    EXPECT_EQ(step.mechanism(Mechanism::kNative), 1_ms + 200_us) << spins;  // backward's too
    EXPECT_EQ(step.mechanism(Mechanism::kBlocked), 300_us) << spins;
  }
}

// The same stretch may be either; the ones before, that were little but a wait, tell.
TEST(Calls, HowAThreadWaitsIsLearned) {
  for (const bool spins : {true, false}) {
    Script loop;
    loop.RunStep();
    for (int i = 0; i < 3; ++i) {
      loop.Begin(Bracket::kLogging).Call(HostCall::kDeviceSync, 10_ms, 0, spins).Cpu(100_us).End(Bracket::kLogging);
    }
    loop.Backward(1_ms).RunStep();
    loop.Cpu(5_ms).Blocked(5_ms).Call(HostCall::kStreamSync, 5_ms, 0, spins).Sample(SampleState::kNative, 1_ms);
    loop.Backward(1_ms).RunStep();
    loop.Finish();
    const Step& step = loop.steps()[1];
    EXPECT_EQ(step.mechanism(Mechanism::kGpuWait), 5_ms);
    EXPECT_NEAR(static_cast<double>(step.mechanism(Mechanism::kNative)), 6e6, 1e5) << spins;
    EXPECT_NEAR(static_cast<double>(step.mechanism(Mechanism::kBlocked)), 5e6, 1e5) << spins;
  }
}

TEST(Calls, AGilWaitWithinACallStaysOne) {
  Script loop;
  loop.RunStep();
  Event call{};
  call.kind = EventKind::kCall;
  call.thread = 1;
  call.what = static_cast<uint8_t>(HostCall::kAlloc);
  call.start_ns = loop.now() + 1_ms;
  loop.Cpu(3_ms).GilWait(2_ms).Cpu(3_ms);
  call.end_ns = loop.now();
  loop.timeline().Add(call);
  loop.Backward(1_ms).RunStep();
  loop.Finish();
  const Step& step = loop.steps()[0];
  EXPECT_EQ(step.mechanism(Mechanism::kGilWait), 2_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kCudaAlloc), 5_ms);
  ASSERT_GE(step.segments.size(), 4u);
  EXPECT_EQ(step.segments[1].mechanism, Mechanism::kCudaAlloc);
  EXPECT_EQ(step.segments[2].mechanism, Mechanism::kGilWait);
  EXPECT_EQ(step.segments[3].mechanism, Mechanism::kCudaAlloc);
}

TEST(Calls, InAPhaseThatNamesItsTimeTheyAreThePhases) {
  const Step step = Only([](Script& loop) {
    loop.Begin(Bracket::kCheckpoint).Call(HostCall::kMemcpy, 5_ms).Blocked(1_ms).End(Bracket::kCheckpoint);
  });
  EXPECT_EQ(step.phase(Phase::kCheckpoint), 6_ms);
  EXPECT_EQ(step.at(Phase::kCheckpoint, Mechanism::kCopy), 5_ms);
}

// `.item()` of older versions of torch: the wait is in the copy to pageable memory.
TEST(Calls, ACopyToPageableMemoryWaitsForTheWorkBeforeIt) {
  Script loop;
  loop.RunStep();
  loop.Launch(10_us, 8_ms);
  const int64_t ready = loop.stream_free_ns();
  loop.Copy(ready + 2_us, ready + 4_us, 77, CopyDirection::kDeviceToHost, MemoryKind::kDevice, MemoryKind::kPageable,
            4);
  const int64_t call_ns = ready + 10_us - loop.now();
  const int64_t waited_ns = ready + 2_us - loop.now();
  loop.Call(HostCall::kMemcpy, call_ns, 77);
  loop.Cpu(300_us).Launch(10_us, 1_ms).Backward(10_us).Sync().RunStep();
  loop.Finish();
  const Step& step = loop.steps()[0];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGpuWait), waited_ns);
  EXPECT_EQ(step.mechanism(Mechanism::kCopy), call_ns - waited_ns);
  EXPECT_GE(step.idle(Cause::kGpuWait), 300_us);  // and what it took to give the device work again
}

TEST(Calls, ACopyThatDoesNotWaitIsACopy) {
  Script loop;
  loop.RunStep();
  loop.Launch(10_us, 1_ms);
  loop.Copy(loop.now() + 4_us, loop.now() + 6_ms, 78, CopyDirection::kDeviceToHost, MemoryKind::kDevice,
            MemoryKind::kPageable, 1 << 24);
  loop.Call(HostCall::kMemcpy, 6_ms + 10_us, 78).Backward(10_us).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].mechanism(Mechanism::kCopy), 6_ms + 10_us);
}

TEST(Calls, SamplesInThemAreTheirsAndSayNothingOfTheRest) {
  Script loop;
  loop.RunStep();
  Event call{};
  call.kind = EventKind::kCall;
  call.thread = 1;
  call.what = static_cast<uint8_t>(HostCall::kStreamSync);
  for (int i = 0; i < 20; ++i) {
    call.start_ns = loop.now();
    loop.Cpu(4_ms).Sample(SampleState::kNative, 4_ms, 66).Cpu(1_ms);  // spins: the sampler takes it for native work
    call.end_ns = loop.now();
    loop.timeline().Add(call);
    loop.Cpu(1_ms);
    if (i % 2 == 0) loop.Sample(SampleState::kPython, 4_ms, 67);
  }
  loop.Backward(10_us).RunStep();
  loop.Finish();
  int64_t in_calls = 0;
  for (const Detail& detail : loop.Details(DetailKind::kCall)) {
    EXPECT_EQ(detail.code, static_cast<int32_t>(HostCall::kStreamSync));
    EXPECT_EQ(detail.stack, 66u);
    in_calls += detail.count;
  }
  EXPECT_EQ(in_calls, 20);
  for (const Detail& detail : loop.Details(DetailKind::kSample)) EXPECT_EQ(detail.stack, 67u);
  EXPECT_EQ(loop.steps()[0].mechanism(Mechanism::kGpuWait), 100_ms);
  EXPECT_EQ(loop.steps()[0].mechanism(Mechanism::kNative), 0);
  EXPECT_GE(loop.steps()[0].mechanism(Mechanism::kPython), 20_ms);
}

TEST(Calls, WithoutCpuTimeWhatIsInNoCallIsUnknown) {
  const Step step = Only([](Script& loop) {
    loop.NoCpuTime().Fetch(kTrain, 3_ms);
    loop.Cpu(2_ms).Call(HostCall::kCpuOp, 5_ms).Call(HostCall::kLaunchKernel, 1_ms).Call(HostCall::kPython, 4_ms);
  });
  EXPECT_EQ(step.at(Phase::kFetch, Mechanism::kUnknown), 3_ms);  // whose cause is data_wait all the same
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kUnknown), 2_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kNative), 5_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kLaunch), 1_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kPython), 4_ms);
}

// While the step thread is blocked in backward, whoever launches work is autograd's thread; no other one.
TEST(Calls, OnlyTheThreadThatLaunchesStandsIn) {
  const Step step = Only([](Script& loop) {
    loop.Begin(Bracket::kBackward);
    loop.On(8).Call(HostCall::kPinnedAlloc, 2_ms);  // a loader's thread that pins memory
    loop.On(2).Call(HostCall::kLaunchKernel, 1_ms).Call(HostCall::kAlloc, 3_ms);
    loop.On(8).Call(HostCall::kPinnedAlloc, 2_ms);
    loop.On(1).End(Bracket::kBackward);
  });
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kLaunch), 1_ms);
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kCudaAlloc), 3_ms);
  // It was blocked, in nothing that was measured; and 1 ms on CPU, of which there is no sample.
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kUnknown), 4_ms + 1_ms);
  ASSERT_EQ(step.calls.size(), 3u);
  EXPECT_EQ(step.calls[0].thread, 8u);
  EXPECT_EQ(step.calls[0].count, 2);
}

TEST(Calls, OfTheFirstStepBeforeItsThreadIsKnown) {
  Script loop;
  loop.Fetch(kTrain, 1_ms);
  for (int i = 0; i < 20'000; ++i) loop.Call(HostCall::kLaunchKernel, 10_us);
  loop.Backward(1_ms).Fetch(kTrain, 1_ms).Backward(1_ms);
  loop.Finish();
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 1_ms);
  EXPECT_EQ(loop.steps()[0].mechanism(Mechanism::kLaunch), 200_ms);
  EXPECT_EQ(loop.steps()[0].calls.at(0).count, 20'000);
}

TEST(Calls, ThatFailAreCounted) {
  const Step step = Only([](Script& loop) {
    loop.Call(HostCall::kAlloc, 10_us, 0, true, kCallFailed).Call(HostCall::kFree, 1_ms).Call(HostCall::kAlloc, 20_us);
  });
  ASSERT_EQ(step.calls.size(), 2u);
  EXPECT_EQ(step.calls[0].count, 2);
  EXPECT_EQ(step.calls[0].failed, 1);
  EXPECT_EQ(step.calls[0].max_ns, 20_us);
}

}  // namespace
}  // namespace trainperf
