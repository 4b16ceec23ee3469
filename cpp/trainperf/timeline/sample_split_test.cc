// What samples say of time on CPU and of blocked time: of the step, of the phase, and of the first steps.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

TEST(SampleSplit, SamplesSplitCpuByPhase) {
  Script loop;
  Loop(loop, 40, [&](int) {
    loop.Cpu(2_ms).Sample(SampleState::kPython).Cpu(2_ms).Sample(SampleState::kNative).Sample(SampleState::kNative);
    loop.Sample(SampleState::kNative);
  });
  const Step& step = loop.steps()[30];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kPython), 1_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kNative), 3_ms);
  // No sample fell into backward: the run's own ratio stands in.
  EXPECT_EQ(step.at(Phase::kBackward, Mechanism::kPython), 500_us);
  EXPECT_EQ(step.mechanism(Mechanism::kUnknown), 0);
  EXPECT_EQ(loop.Details(DetailKind::kSample).size(), 80u);
}

TEST(SampleSplit, OwnSamplesCountMoreThanOldOnes) {
  Script loop;
  Loop(loop, 400, [&](int i) {
    loop.Cpu(4_ms);
    for (int j = 0; j < 10; ++j) loop.Sample(i < 300 ? SampleState::kNative : SampleState::kPython);
  });
  EXPECT_EQ(loop.steps()[299].at(Phase::kForward, Mechanism::kNative), 4_ms);
  EXPECT_GT(loop.steps()[350].at(Phase::kForward, Mechanism::kPython), 3'300_us);  // half-life: 20 such steps
}

TEST(SampleSplit, WaitingForOpenMpIsCompute) {
  Script loop;
  Loop(loop, 40, [&](int) {
    loop.Cpu(1_ms).Blocked(4_ms).Sample(SampleState::kParallel).Sample(SampleState::kBlocked, 4_ms, 1, 202);
  });
  const Step& step = loop.steps()[30];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kNative), 2_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kBlocked), 2_ms);
  EXPECT_EQ(step.at(Phase::kFetch, Mechanism::kBlocked), 100_us);  // a fetch waits for its data whatever it waits for
  int blocked = 0;
  for (const Detail& detail : loop.Details(DetailKind::kSample)) {
    blocked += detail.state == SampleState::kBlocked && detail.code == 202;
  }
  EXPECT_EQ(blocked, 40);
}

// The first steps are held back until it is sure where they end: by then later ones have been sampled.
TEST(SampleSplit, FirstStepsGoByTheSamplesOfLaterOnes) {
  Script loop;
  Loop(loop, 40, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 3) loop.Sample(SampleState::kNative);
  });
  EXPECT_EQ(loop.steps()[0].mechanism(Mechanism::kUnknown), 0);
  EXPECT_EQ(loop.steps()[0].at(Phase::kForward, Mechanism::kNative), 1_ms);
}

// The sampler may come late, on a machine that is busy.
TEST(SampleSplit, StepsWaitForTheFirstSample) {
  Script loop;
  loop.timeline().AwaitSample();
  int64_t before = -1;
  int64_t after = -1;
  Loop(loop, 300, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 150) loop.Sample(SampleState::kNative);
    if (i == 149) before = loop.timeline().steps_closed();
    if (i == 152) after = loop.timeline().steps_closed();
  });
  EXPECT_EQ(before, 0);
  EXPECT_GE(after, 100);
  ASSERT_EQ(loop.steps().size(), 300u);
  for (const Step& step : loop.steps()) ASSERT_EQ(step.mechanism(Mechanism::kUnknown), 0) << step.index;
}

// The kernel's readings come on their own clock: they settle the run delay, and tell nothing of time on CPU.
TEST(SampleSplit, AReadingOfTheCgroupDoesNotEndTheWaitForTheFirstSample) {
  Script loop;
  loop.timeline().AwaitSample();
  loop.Throttled(0);
  Loop(loop, 100, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 20) loop.Throttled(0);
    if (i == 40) loop.Sample(SampleState::kNative);
  });
  ASSERT_EQ(loop.steps().size(), 100u);
  for (const Step& step : loop.steps()) ASSERT_EQ(step.mechanism(Mechanism::kUnknown), 0) << step.index;
}

TEST(SampleSplit, StepsThatSomebodyWantsDoNotWaitAndLaterOnesDo) {
  Script loop;
  loop.timeline().AwaitSample();
  int64_t before = -1, after = -1;
  Loop(loop, 200, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 100) {
      before = loop.timeline().steps_closed();
      loop.timeline().WriteWaiting();
      after = loop.timeline().steps_closed();
    }
    if (i == 150) loop.Sample(SampleState::kNative);
  });
  EXPECT_EQ(before, 0);
  EXPECT_GE(after, 50);
  ASSERT_EQ(loop.steps().size(), 200u);
  EXPECT_GE(loop.steps()[5].mechanism(Mechanism::kUnknown), 1_ms);
  for (size_t i = 101; i < 200; ++i) EXPECT_EQ(loop.steps()[i].mechanism(Mechanism::kUnknown), 0) << i;
}

TEST(SampleSplit, StepsWaitTwoSecondsAndNoneLaterWhereNoSampleComes) {
  Script loop;
  loop.timeline().AwaitSample();
  std::vector<int64_t> closed;
  Loop(loop, 100, [&](int) {
    loop.Cpu(50_ms);
    closed.push_back(loop.timeline().steps_closed());
  });
  EXPECT_EQ(closed[35], 0);
  EXPECT_GT(closed[45], 0);
  EXPECT_GE(closed[99], 98);
  EXPECT_EQ(loop.steps().size(), 100u);
}

TEST(SampleSplit, BriefBlockingIsNotSplit) {
  Script loop;
  Loop(loop, 40, [&](int) { loop.Cpu(1_ms).Blocked(40_us).Sample(SampleState::kParallel); });
  EXPECT_EQ(loop.steps()[30].at(Phase::kForward, Mechanism::kBlocked), 40_us);
}

}  // namespace
}  // namespace trainperf
