// One test per shape of training loop: where its steps end, and which phases its time is in.

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

TEST(LoopShapes, Plain) {
  Script loop;
  loop.LoaderStart(kTrain, 20_ms);
  for (int i = 0; i < 100; ++i) loop.Fetch(kTrain, 2_ms).Forward(5_ms).Backward(4_ms).Cpu(1_ms).Optimizer(kAdam, 3_ms);
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 100u);
  const Step& first = loop.steps()[0];
  EXPECT_EQ(first.phase(Phase::kFetch), 22_ms);  // with the start of the workers
  EXPECT_TRUE(first.has(kWarmUp));
  EXPECT_TRUE(first.has(kHasLoaderStart));
  for (size_t i = 1; i < 99; ++i) {
    const Step& step = loop.steps()[i];
    EXPECT_EQ(step.wall(), 15_ms);
    EXPECT_EQ(step.phase(Phase::kFetch), 2_ms);
    EXPECT_EQ(step.phase(Phase::kForward), 5_ms);
    EXPECT_EQ(step.phase(Phase::kBackward), 4_ms);
    EXPECT_EQ(step.phase(Phase::kOptimizer), 3_ms);
    EXPECT_EQ(step.phase(Phase::kOther), 1_ms);
    EXPECT_EQ(step.fetches, 1);
    EXPECT_EQ(step.backwards, 1);
    EXPECT_EQ(step.optimizer_steps, 1);
    EXPECT_EQ(step.flags, kDataStarved);
  }
  EXPECT_EQ(loop.steps().back().wall(), 15_ms + 100_us);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
  EXPECT_EQ(loop.timeline().step_thread(), 1u);
}

TEST(LoopShapes, SeveralEpochsStartWithTheIterator) {
  Script loop;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loop.LoaderStart(kTrain, 7_ms).Cpu(100_us);
    for (int i = 0; i < 4; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain).Cpu(3_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(loop.steps()[i].has(kHasLoaderStart), i % 4 == 0) << i;
    EXPECT_EQ(loop.steps()[i].phase(Phase::kFetch), 1_ms + (i % 4 == 0 ? 7_ms : 0) + (i % 4 == 3 ? 100_us : 0)) << i;
  }
  EXPECT_EQ(loop.Spans(SpanKind::kLoaderStart).size(), 3u);
  EXPECT_EQ(loop.Spans(SpanKind::kFirstFetch).size(), 3u);
  EXPECT_EQ(loop.Spans(SpanKind::kLoaderStart)[1].step, 4);
}

TEST(LoopShapes, TwoLoadersZippedOfDifferentLength) {
  Script loop;
  for (int epoch = 0; epoch < 2; ++epoch) {
    loop.LoaderStart(kTrain, 1_ms).LoaderStart(kSecond, 1_ms);
    for (int i = 0; i < 5; ++i) {
      loop.Fetch(kTrain, 1_ms).Fetch(kSecond, 2_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    }
    loop.Fetch(kTrain, 1_ms).Exhausted(kSecond).Cpu(20_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[1].fetches, 2);
  EXPECT_EQ(loop.steps()[1].phase(Phase::kFetch), 3_ms);
  EXPECT_EQ(loop.steps()[1].wall(), 8_ms);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kOther), 20_ms);  // what comes after the epoch is not the next step's
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(LoopShapes, ShorterLoaderIsCycled) {
  Script loop;
  loop.LoaderStart(kTrain, 1_ms).LoaderStart(kSecond, 1_ms);
  for (int i = 0; i < 12; ++i) {
    loop.Fetch(kTrain, 1_ms);
    if (i % 3 == 2) loop.Exhausted(kSecond).LoaderStart(kSecond, 1_ms);
    loop.Fetch(kSecond, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 12u);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kFetch), 3_ms + 100_us);
}

TEST(LoopShapes, GradientAccumulationIsOneStepPerBatch) {
  Script loop;
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms);
    if (i % 4 == 3) loop.Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  EXPECT_EQ(loop.steps()[2].optimizer_steps, 0);
  EXPECT_EQ(loop.steps()[3].optimizer_steps, 1);
}

TEST(LoopShapes, BatchesOfAnAccumulationFetchedAtOnce) {
  Script loop;
  for (int i = 0; i < 10; ++i) {
    for (int j = 0; j < 4; ++j) loop.Fetch(kTrain, 1_ms);
    for (int j = 0; j < 4; ++j) loop.Forward(2_ms).Backward(2_ms);
    loop.Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].fetches, 4);
  EXPECT_EQ(loop.steps()[9].backwards, 4);
}

TEST(LoopShapes, PrefetchedByOne) {  // Lightning with a loader without a length
  Script loop;
  loop.Fetch(kTrain, 1_ms);
  for (int i = 0; i < 10; ++i) {
    if (i < 9) {
      loop.Fetch(kTrain, 1_ms);
    } else {
      loop.Exhausted(kTrain);
    }
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.backwards, 1);
}

TEST(LoopShapes, GanWithTwoOptimizersAndLoader) {
  Script loop;
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(1_ms).Optimizer(kDiscriminator, 1_ms);
    loop.Forward(2_ms).Backward(3_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[7].backwards, 2);
  EXPECT_EQ(loop.steps()[7].optimizer_steps, 2);
  EXPECT_EQ(loop.steps()[7].phase(Phase::kForward), 4_ms);
}

TEST(LoopShapes, GanWithTwoOptimizersAndNoLoader) {
  Script loop;
  for (int i = 0; i < 50; ++i) {
    loop.Forward(2_ms).Backward(1_ms).Optimizer(kDiscriminator, 1_ms);
    loop.Forward(2_ms).Backward(3_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 50u);
  for (size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(loop.steps()[i].wall(), 10_ms);
    EXPECT_EQ(loop.steps()[i].phase(Phase::kForward), 4_ms);
    EXPECT_EQ(loop.steps()[i].optimizer_steps, 2);
  }
}

TEST(LoopShapes, LbfgsRunsBackwardManyTimesInOneOptimizerStep) {
  Script loop;
  for (int i = 0; i < 10; ++i) {
    loop.Fetch(kTrain, 1_ms).Begin(Bracket::kOptimizer, kAdam);
    for (int j = 0; j < 20; ++j) loop.Forward(2_ms).Backward(2_ms);
    loop.Cpu(1_ms).End(Bracket::kOptimizer);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[4].backwards, 20);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kForward), 40_ms);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kBackward), 40_ms);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kOptimizer), 1_ms);
  EXPECT_EQ(loop.steps()[4].wall(), 82_ms);
}

TEST(LoopShapes, LbfgsWithoutLoader) {
  Script loop;
  for (int i = 0; i < 5; ++i) {
    loop.Begin(Bracket::kOptimizer, kAdam);
    for (int j = 0; j < 20; ++j) loop.Forward(2_ms).Backward(2_ms);
    loop.Cpu(1_ms).End(Bracket::kOptimizer);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 5u);
}

TEST(LoopShapes, ClosureInsideTheOptimizer) {  // Lightning
  Script loop;
  for (int i = 0; i < 10; ++i) {
    loop.Fetch(kTrain, 1_ms).Cpu(1_ms).Begin(Bracket::kOptimizer, kAdam).Forward(3_ms).Backward(2_ms).Cpu(1_ms);
    loop.End(Bracket::kOptimizer).Cpu(2_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[3].phase(Phase::kForward), 3_ms);
  EXPECT_EQ(loop.steps()[3].phase(Phase::kOptimizer), 1_ms);
  EXPECT_EQ(loop.steps()[3].phase(Phase::kOther), 3_ms);
}

TEST(LoopShapes, NoLoaderWithMicroBatches) {
  Script loop;
  loop.Cpu(500_ms);
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 3; ++j) loop.Forward(2_ms).Blocked(1_ms).Backward(2_ms);
    loop.Optimizer(kAdam, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 60u);
  for (size_t i = 1; i < 60; ++i) {
    EXPECT_EQ(loop.steps()[i].wall(), 16_ms);
    EXPECT_EQ(loop.steps()[i].backwards, 3);
    EXPECT_EQ(loop.steps()[i].optimizer_steps, 1);
    EXPECT_EQ(loop.steps()[i].phase(Phase::kForward), 9_ms);
  }
}

void ExpectOneStepEach(int optimizer_steps, int backwards, int64_t each_ns) {
  for (const bool by_loader : {true, false}) {
    Script loop;
    for (int i = 0; i < optimizer_steps; ++i) {
      if (by_loader) loop.Fetch(kTrain, 1_ms);
      for (int j = 0; j < backwards; ++j) loop.Forward(each_ns / 3).Backward(each_ns * 2 / 3);
      loop.Optimizer(kAdam, 1_ms);
    }
    if (by_loader) loop.Exhausted(kTrain);
    loop.Finish();
    ASSERT_EQ(loop.steps().size(), static_cast<size_t>(optimizer_steps)) << by_loader;
    for (const auto& step : loop.steps()) EXPECT_EQ(step.backwards, backwards);
  }
}

TEST(LoopShapes, ABackwardForEachSampleOfABatch) { ExpectOneStepEach(5, 200, 3_ms); }

TEST(LoopShapes, ManyLongMicroBatchesBeforeTheFirstOptimizerStep) { ExpectOneStepEach(3, 40, 1200_ms); }

TEST(LoopShapes, NoOptimizerClosesAtTheBackward) {
  Script loop;
  for (int i = 0; i < 50; ++i) loop.Forward(2_ms).Backward(2_ms).Cpu(1_ms);
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 50u);
  EXPECT_EQ(loop.steps()[30].wall(), 5_ms);
  EXPECT_EQ(loop.steps()[49].wall(), 6_ms);  // to the end of the watch
}

TEST(LoopShapes, NoOptimizerInALongRunIsPutOutAsItGoes) {
  for (const bool one_batch : {false, true}) {
    for (const int64_t step : {5_ms, 300_ms}) {  // by number, and by time
      Script loop;
      if (one_batch) loop.Fetch(kTrain, 1_ms);
      const int most_held = step == 5_ms ? 1100 : 250;
      for (int i = 0; i < 3000; ++i) {
        loop.Forward(step / 2).Backward(step / 2);
        ASSERT_GE(static_cast<int>(loop.steps().size()), i - most_held);
      }
      loop.Finish();
      EXPECT_EQ(loop.steps().size(), 3000u);
    }
  }
}

TEST(LoopShapes, NoOptimizerAndFewStepsOnly) {
  Script loop;
  for (int i = 0; i < 5; ++i) loop.Forward(2_ms).Backward(2_ms).Cpu(1_ms);
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 5u);
}

TEST(LoopShapes, WeightsUpdatedByHandWithLoader) {
  Script loop;
  for (int i = 0; i < 40; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Cpu(1_ms);
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  EXPECT_EQ(loop.steps()[1].wall(), 6_ms);
}

TEST(LoopShapes, OneBatchTrainedOnAgainAndAgain) {
  for (const int iterations : {10, 40, 200}) {
    Script loop;
    loop.LoaderStart(kTrain, 1_ms).Fetch(kTrain, 1_ms);
    for (int i = 0; i < iterations; ++i) loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Finish();
    EXPECT_EQ(loop.steps().size(), static_cast<size_t>(iterations));
  }
}

TEST(LoopShapes, TwoStepsPerFetchedBatch) {
  Script loop;
  for (int i = 0; i < 30; ++i) {
    loop.Fetch(kTrain, 1_ms);
    for (int j = 0; j < 2; ++j) loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 30u);
  EXPECT_EQ(loop.steps()[0].optimizer_steps, 2);
  EXPECT_EQ(loop.steps()[17].optimizer_steps, 2);
}

TEST(LoopShapes, LoaderReadByABackgroundThread) {
  Script loop;
  for (int i = 0; i < 50; ++i) {
    loop.On(2).Fetch(kTrain, 1_ms).On(1);
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 50u);
  EXPECT_EQ(loop.steps()[5].fetches, 0);
  EXPECT_EQ(loop.Phases(Phase::kFetch), 0);
  ASSERT_EQ(loop.sink().fetches.size(), 50u);
  for (const FetchRecord& fetch : loop.sink().fetches) {
    EXPECT_FALSE(fetch.on_step_thread);
    EXPECT_EQ(fetch.step, -1);
    EXPECT_EQ(fetch.end_ns - fetch.start_ns, 1_ms);
  }
}

TEST(LoopShapes, TrainingOnAThreadThatIsNotTheFirst) {
  Script loop;
  loop.On(1).LoaderStart(kVal, 1_ms).Fetch(kVal, 1_ms);  // the main thread looks at a batch
  loop.On(7).Cpu(1_ms);
  for (int i = 0; i < 20; ++i) {
    loop.On(7).Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.On(1).Begin(Bracket::kLogging).Blocked(1_ms).End(Bracket::kLogging);
  }
  loop.On(7).Exhausted(kTrain).Finish();
  EXPECT_EQ(loop.timeline().step_thread(), 7u);
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[0].fetches, 1);
  EXPECT_EQ(loop.Phases(Phase::kLogging), 0);
}

TEST(LoopShapes, ThreadsThatTrainAtOnceAreTold) {
  const auto told = [](int steps, ThreadId other) {
    Script loop;
    loop.sink().touching = false;
    for (int i = 0; i < steps; ++i) {
      for (const ThreadId thread : {ThreadId{1}, other})
        loop.On(thread).Forward(1_ms).Backward(1_ms).Optimizer(kAdam, 1_ms);
    }
    loop.Finish();
    return loop.timeline().another_trains_too();
  };
  EXPECT_TRUE(told(30, 2));
  EXPECT_FALSE(told(3, 2));   // a probe of the learning rate, for one
  EXPECT_FALSE(told(30, 1));  // one thread, twice as many steps
}

TEST(LoopShapes, EachFoldInAThreadOfItsOwn) {
  Script loop;
  loop.sink().touching = false;
  for (ThreadId fold = 1; fold <= 3; ++fold) {
    loop.On(fold);
    for (int i = 0; i < 20; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain).Cpu(50_ms);
  }
  loop.Finish();
  EXPECT_GE(loop.steps().size(), 20u + 2 * 17u);
  EXPECT_FALSE(loop.timeline().another_trains_too());
}

TEST(LoopShapes, RunStepAloneCuts) {
  Script loop;  // an accumulation of four, which is one step to its author
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms);
    if (i % 4 == 3) loop.Optimizer(kAdam, 1_ms).RunStep();
  }
  loop.Exhausted(kTrain).Cpu(3_ms).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  for (const Step& step : loop.steps()) {
    EXPECT_EQ(step.fetches, 4);
    EXPECT_EQ(step.wall(), 21_ms);
  }
}

TEST(LoopShapes, RunStepAtTheStartOfTheBody) {
  Script loop;
  for (int i = 0; i < 10; ++i) loop.Fetch(kTrain, 1_ms).RunStep().Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Finish();
  EXPECT_EQ(loop.steps().size(), 10u);
}

TEST(LoopShapes, RunStepWithoutAnyBackward) {
  Script loop;
  for (int i = 0; i < 11; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 11u);
}

TEST(LoopShapes, IterableDatasetEndsWithoutWarning) {
  Script loop;
  for (int epoch = 0; epoch < 2; ++epoch) {
    loop.LoaderStart(kTrain, 1_ms);
    for (int i = 0; i < 3; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 6u);
  int exhausted = 0;
  for (const FetchRecord& fetch : loop.sink().fetches) exhausted += fetch.exhausted;
  EXPECT_EQ(exhausted, 2);
  EXPECT_EQ(loop.steps()[2].fetches, 1);
}

TEST(LoopShapes, ACallbackThatFetchesBetweenMicroBatches) {
  constexpr uint32_t kCallback = 40;
  Script loop;
  loop.LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 20; ++i) {
    for (int batch = 0; batch < 4; ++batch) loop.Fetch(kTrain, 1_ms);
    for (int batch = 0; batch < 4; ++batch) {
      loop.Forward(2_ms).Backward(2_ms).Begin(Bracket::kCallback, kCallback);
      if (i + batch == 0) loop.LoaderStart(kSecond, 5_ms);
      loop.Fetch(kSecond, 3_ms).Cpu(1_ms).End(Bracket::kCallback);
    }
    loop.Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  for (size_t i = 1; i < 19; ++i) {
    EXPECT_EQ(loop.steps()[i].phase(Phase::kFetch), 16_ms) << i;
    EXPECT_EQ(loop.steps()[i].phase(Phase::kOther), 4_ms) << i;
    EXPECT_EQ(loop.steps()[i].backwards, 4) << i;
    EXPECT_EQ(loop.steps()[i].fetches, 4) << i;
  }
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(LoopShapes, WhatACallbackFetchesAfterTheLastStepIsNoBatchOfTraining) {
  constexpr uint32_t kCallback = 40;
  Script loop;
  loop.LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Begin(Bracket::kCallback, kCallback).Fetch(kSecond, 3_ms).Cpu(1_ms).End(Bracket::kCallback);
  }
  loop.Begin(Bracket::kCallback, kCallback).Exhausted(kSecond).End(Bracket::kCallback).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(loop.steps()[i].phase(Phase::kOther), 1_ms) << i;
  EXPECT_EQ(loop.steps().back().phase(Phase::kFetch), 4_ms + 100_us);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(LoopShapes, OptimizersThatAreReplaced) {
  constexpr uint32_t kFirst = 100;
  Script loop;
  const auto iteration = [&loop](uint32_t optimizer) {
    loop.Cpu(1_ms).Forward(2_ms).Backward(2_ms).Optimizer(optimizer, 1_ms);
  };
  for (uint32_t of = kFirst; of < kFirst + 80; ++of) {  // one for each task, as Reptile's
    for (int i = 0; i < 5; ++i) iteration(of);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 400u);
  for (size_t i = 1; i < 400; ++i) EXPECT_EQ(loop.steps()[i].optimizer_steps, 1) << i;
}

TEST(LoopShapes, TwoOptimizersThatAreReplaced) {
  constexpr uint32_t kNewAdam = 100, kNewDiscriminator = 101;
  Script loop;
  for (int i = 0; i < 40; ++i) {
    const bool first = i < 20;
    loop.Forward(2_ms).Backward(2_ms).Optimizer(first ? kDiscriminator : kNewDiscriminator, 1_ms);
    loop.Forward(1_ms).Backward(1_ms).Optimizer(first ? kAdam : kNewAdam, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.optimizer_steps, 2) << step.index;
}

TEST(LoopShapes, AnOptimizerThatJoinsLater) {
  Script loop;
  for (int i = 0; i < 40; ++i) {
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    if (i >= 10 && i % 2 == 0) loop.Cpu(1_ms).Backward(1_ms).Optimizer(kDiscriminator, 1_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(loop.steps()[i].optimizer_steps, i >= 10 && i % 2 == 0 ? 2 : 1) << i;
}

}  // namespace
}  // namespace trainperf
