// Loops in which nothing trains: each batch of a DataLoader is a step, until a backward shows otherwise.

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

constexpr uint32_t kModel = 21;

TEST(Inference, EachBatchIsAStep) {
  Script loop;
  loop.WatchBegins().Begin(Bracket::kEval, kModel).Cpu(3_ms).LoaderStart(kVal, 1_ms);
  for (int i = 0; i < 50; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  loop.Exhausted(kVal, kGradDisabled).Finish();
  ASSERT_EQ(loop.steps().size(), 50u);
  EXPECT_EQ(loop.timeline().lead_ns(), 3_ms);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 3_ms);
  EXPECT_TRUE(loop.steps()[0].has(kHasLoaderStart));
  for (size_t i = 1; i < 49; ++i) {
    EXPECT_EQ(loop.steps()[i].phase(Phase::kFetch), 2_ms) << i;
    EXPECT_EQ(loop.steps()[i].phase(Phase::kForward), 5_ms) << i;
    EXPECT_EQ(loop.steps()[i].fetches, 1) << i;
    EXPECT_EQ(loop.steps()[i].backwards, 0) << i;
  }
  EXPECT_EQ(loop.steps()[49].phase(Phase::kFetch), 2_ms + 100_us);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_TRUE(loop.Spans(SpanKind::kValidation).empty());
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
  EXPECT_EQ(loop.sink().taken_back, 0);
}

TEST(Inference, StepsAreThereWhileItRuns) {
  Script loop;
  for (int i = 0; i < 4; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  EXPECT_EQ(loop.timeline().step_thread(), 1u);
  for (int i = 0; i < 16; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  EXPECT_EQ(loop.timeline().steps_closed(), 19);
}

TEST(Inference, WithGradientsToo) {
  Script loop;
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 2_ms).Forward(5_ms);
  loop.Exhausted(kVal).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.Phases(Phase::kForward), 100_ms);
}

TEST(Inference, ALookAtTheDataIsNone) {
  Script loop;
  for (int i = 0; i < 3; ++i) loop.Fetch(kVal, 2_ms).Forward(5_ms);
  loop.Finish();
  EXPECT_EQ(loop.timeline().step_thread(), 0u);
  EXPECT_TRUE(loop.steps().empty());
}

TEST(Inference, TwoLoadersInTurnAreOneStep) {
  Script loop;
  loop.LoaderStart(kVal, 1_ms).LoaderStart(kSecond, 1_ms);
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 2_ms).Fetch(kSecond, 1_ms).Forward(5_ms);
  loop.Exhausted(kVal).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[7].fetches, 2);
  EXPECT_EQ(loop.steps()[7].phase(Phase::kFetch), 3_ms);
}

TEST(Inference, OneDatasetAfterAnother) {
  Script loop;
  for (uint32_t loader : {kVal, kSecond, kTrain}) {
    loop.LoaderStart(loader, 1_ms);
    for (int i = 0; i < 10; ++i) loop.Fetch(loader, 2_ms, kGradDisabled).Forward(5_ms);
    if (loader != kSecond) loop.Exhausted(loader, kGradDisabled);  // that one is left in the middle
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 30u);
  EXPECT_TRUE(loop.steps()[10].has(kHasLoaderStart));
  EXPECT_EQ(loop.steps()[10].phase(Phase::kFetch), 3_ms);
  EXPECT_EQ(loop.steps()[20].phase(Phase::kFetch), 3_ms);
}

TEST(Inference, WhatIsBracketedAsValidationIsTheWork) {
  Script loop;
  loop.Begin(Bracket::kUserPhase, 0, -1, 0, Phase::kValidation);
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  loop.Exhausted(kVal, kGradDisabled).End(Bracket::kUserPhase, 0, Phase::kValidation).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_EQ(loop.Phases(Phase::kForward), 100_ms);
  EXPECT_TRUE(loop.Spans(SpanKind::kValidation).empty());
}

TEST(Inference, AThreadThatLoadsForAnotherIsNone) {
  Script loop;
  loop.WatchBegins().On(2);
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 2_ms).Blocked(5_ms);
  loop.Finish();
  EXPECT_TRUE(loop.steps().empty());
  EXPECT_EQ(loop.sink().fetches.size(), 20u);
}

// The same training, with and without an evaluation first.
void Train(Script* loop) {
  loop->LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 40; ++i) {
    loop->Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    if (i != 19) continue;
    loop->Begin(Bracket::kEval, kModel).LoaderStart(kVal, 1_ms);
    for (int j = 0; j < 10; ++j) loop->Fetch(kVal, 5_ms, kGradDisabled).Forward(2_ms);
    loop->Exhausted(kVal, kGradDisabled).End(Bracket::kEval);
  }
  loop->Exhausted(kTrain).Finish();
}

TEST(Inference, AnEvaluationBeforeTrainingIsTakenBack) {
  Script alone;
  Train(&alone);
  Script loop;
  const int64_t start_ns = loop.now();
  loop.Begin(Bracket::kEval, kModel).LoaderStart(kVal, 1_ms);
  for (int i = 0; i < 100; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  loop.Exhausted(kVal, kGradDisabled).End(Bracket::kEval);
  EXPECT_GT(loop.timeline().steps_closed(), 90);
  const int64_t before_ns = loop.now() - start_ns;
  Train(&loop);
  EXPECT_EQ(loop.sink().taken_back, 1);
  EXPECT_EQ(loop.timeline().lead_ns(), before_ns);
  ASSERT_EQ(loop.steps().size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    const Step& step = loop.steps()[i];
    EXPECT_EQ(step.wall(), alone.steps()[i].wall()) << i;
    EXPECT_EQ(step.flags, alone.steps()[i].flags) << i;
    EXPECT_EQ(step.phase(Phase::kValidation), alone.steps()[i].phase(Phase::kValidation)) << i;
    EXPECT_EQ(step.phase(Phase::kFetch), alone.steps()[i].phase(Phase::kFetch)) << i;
  }
  ASSERT_EQ(loop.Spans(SpanKind::kValidation).size(), 2u);
  EXPECT_EQ(loop.Spans(SpanKind::kValidation)[0].step, -1);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(Inference, StatisticsOfTheTrainingDataAreTakenBack) {
  Script loop;
  for (int i = 0; i < 30; ++i) loop.Fetch(kTrain, 1_ms).Cpu(1_ms);
  loop.Exhausted(kTrain);
  Train(&loop);
  ASSERT_EQ(loop.steps().size(), 40u);
  EXPECT_EQ(loop.steps()[0].wall(), 7_ms);
}

TEST(Inference, AnotherThreadMayBeTheOneThatTrains) {
  Script loop;
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Forward(5_ms);
  loop.On(2);
  Train(&loop);
  ASSERT_EQ(loop.steps().size(), 40u);
  EXPECT_EQ(loop.timeline().step_thread(), 2u);
}

TEST(Inference, RunStepOverridesBatches) {
  Script loop;
  for (int i = 0; i < 21; ++i) {
    for (int j = 0; j < 10; ++j) loop.Fetch(kVal, 1_ms, kGradDisabled).Forward(2_ms);
    loop.RunStep();
  }
  loop.Finish();
  ASSERT_GE(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[5].wall(), 30_ms);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
}

TEST(Inference, RunStepWithoutABackwardHasNoValidation) {
  Script loop;
  loop.Begin(Bracket::kEval, kModel);
  for (int i = 0; i < 20; ++i) loop.Fetch(kVal, 1_ms, kGradDisabled).Forward(2_ms).RunStep();
  loop.Finish();
  ASSERT_GE(loop.steps().size(), 19u);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_TRUE(loop.Spans(SpanKind::kValidation).empty());
  EXPECT_EQ(loop.steps()[10].phase(Phase::kForward), 2_ms);
  EXPECT_EQ(loop.steps()[10].phase(Phase::kFetch), 1_ms);
}

TEST(Inference, RunStepWithABackwardKeepsItsValidation) {
  Script loop;
  loop.Begin(Bracket::kEval, kModel);
  for (int i = 0; i < 3; ++i) loop.Fetch(kVal, 1_ms, kGradDisabled).Forward(2_ms);
  loop.End(Bracket::kEval);
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms);
    if (i == 9) {
      loop.Begin(Bracket::kEval, kModel);
      for (int j = 0; j < 3; ++j) loop.Fetch(kVal, 1_ms, kGradDisabled).Forward(2_ms);
      loop.End(Bracket::kEval);
    }
    loop.RunStep();
  }
  loop.Finish();
  EXPECT_EQ(loop.Phases(Phase::kValidation), 9_ms);
}

TEST(Inference, OnADevice) {
  Script loop;
  loop.LoaderStart(kVal, 1_ms);
  for (int i = 0; i < 100; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Launch(20_us, 8_ms).Sync();
  loop.Exhausted(kVal, kGradDisabled).Finish();
  ASSERT_EQ(loop.steps().size(), 100u);
  EXPECT_NEAR(static_cast<double>(loop.steps()[50].device().busy_ns), 8e6, 1e5);
}

TEST(Inference, OnADeviceBeforeTraining) {
  Script loop;
  loop.LoaderStart(kVal, 1_ms);
  for (int i = 0; i < 100; ++i) loop.Fetch(kVal, 2_ms, kGradDisabled).Launch(20_us, 8_ms).Sync();
  loop.Exhausted(kVal, kGradDisabled);
  for (int i = 0; i < 50; ++i) {
    loop.Fetch(kTrain, 2_ms).Launch(20_us, 8_ms).Backward(1_ms).Optimizer(kAdam, 1_ms).Sync();
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 50u);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 2_ms);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(static_cast<double>(loop.steps()[i].device().busy_ns), 8e6, 1e5) << i;
    EXPECT_EQ(loop.steps()[i].device().kernels, 1) << i;
  }
}

}  // namespace
}  // namespace trainperf
