// Loops that break off, lose an end or go on after the last step.

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

TEST(BrokenLoops, ExceptionInTheMiddleOfABatchThenANewEpoch) {
  Script loop;
  loop.LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 1_ms).Forward(2_ms);  // raises; its author tries again
  loop.LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 1_ms).Forward(1_ms).Finish();
  EXPECT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 2);
  EXPECT_EQ(loop.steps()[4].wall(), 9_ms);
  EXPECT_EQ(loop.steps()[9].wall(), 6_ms);
}

TEST(BrokenLoops, ABatchThatIsSkippedInTheMiddle) {
  Script loop;
  for (int i = 0; i < 60; ++i) {
    loop.Fetch(kTrain, 1_ms);
    if (i == 50 || i == 51) continue;  // bad labels
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 58u);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 2);
  EXPECT_EQ(loop.steps()[50].fetches, 3);  // their time is the next step's
  EXPECT_EQ(loop.steps()[50].wall(), 8_ms);
}

TEST(BrokenLoops, SeveralBatchesAStepAreNotSkipped) {
  Script pairs;  // of the same loader, in one loss
  for (int i = 0; i < 60; ++i) {
    pairs.Fetch(kTrain, 1_ms);
    if (i % 3 > 0) pairs.Fetch(kTrain, 1_ms);
    pairs.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  pairs.Exhausted(kTrain).Finish();
  EXPECT_EQ(pairs.steps().size(), 60u);
  EXPECT_EQ(pairs.timeline().incomplete_steps(), 0);
  Script zipped;  // with another loader, now and then
  for (int i = 0; i < 60; ++i) {
    zipped.Fetch(kTrain, 1_ms);
    if (i % 16 == 15) zipped.Fetch(kSecond, 1_ms);
    zipped.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  zipped.Exhausted(kTrain).Finish();
  EXPECT_EQ(zipped.timeline().incomplete_steps(), 0);
}

TEST(BrokenLoops, FetchThatRaises) {
  Script loop;
  for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 1_ms, 0, kFetchRaised).Finish();
  EXPECT_EQ(loop.steps().size(), 5u);
  EXPECT_EQ(loop.sink().fetches.size(), 5u);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(BrokenLoops, FetchBehindBatchesThatWereReadyTooEarly) {
  Script loop;
  for (int i = 0; i < 5; ++i) {
    loop.Begin(Bracket::kFetch, kTrain, 3).Blocked(1_ms).End(Bracket::kFetch, i == 2 ? kFetchedBehind : kFetchedBatch);
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 5u);
  ASSERT_EQ(loop.sink().fetches.size(), 6u);
  EXPECT_EQ(loop.sink().fetches[1].ready, 3);
  EXPECT_EQ(loop.sink().fetches[2].ready, 0);
}

TEST(BrokenLoops, FetchThatWaitsForOneWorker) {
  const std::vector<Awaited> awaited = {
      {}, {0, 1, 70'000}, {-1, 3, 5'000}, {kMaxAwaitedWorkers, kMaxAwaitedWorkers, 3'600'000'000'000}};
  Script loop;
  for (const Awaited& who : awaited) {
    loop.Begin(Bracket::kFetch, kTrain, 2).Blocked(1_ms).End(Bracket::kFetch, FetchValue(kFetchedBehind, who));
    loop.Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.sink().fetches.size(), awaited.size() + 1);
  for (size_t i = 0; i < awaited.size(); ++i) {
    const FetchRecord& fetch = loop.sink().fetches[i];
    EXPECT_EQ(fetch.ready, 0);
    EXPECT_EQ(fetch.awaited.worker, awaited[i].worker);
    EXPECT_EQ(fetch.awaited.reading, awaited[i].reading);
    EXPECT_EQ(fetch.awaited.wait_ns, std::min(awaited[i].wait_ns, kMaxAwaitedNs));
  }
  EXPECT_EQ(FetchValue(kFetchedBatch, {kMaxAwaitedWorkers + 1, 1, 5}), kFetchedBatch);
}

TEST(BrokenLoops, OptimizerThatRaisesLosesItsEnd) {
  Script loop;
  for (int i = 0; i < 10; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms);
    if (i == 4) {
      loop.Begin(Bracket::kOptimizer, kAdam).Cpu(1_ms);  // out of memory
    } else {
      loop.Optimizer(kAdam, 1_ms);
    }
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[8].phase(Phase::kOptimizer), 1_ms);
  EXPECT_EQ(loop.steps()[8].phase(Phase::kForward), 2_ms);
}

TEST(BrokenLoops, EndsWithoutABegin) {
  Script loop;  // the watch began in the middle of everything
  loop.End(Bracket::kBackward).End(Bracket::kOptimizer).End(Bracket::kEval).End(Bracket::kGc).Cpu(2_ms);
  for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Finish();
  EXPECT_EQ(loop.steps().size(), 5u);
}

TEST(BrokenLoops, NestedBrackets) {
  Script loop;
  for (int i = 0; i < 5; ++i) {
    loop.Begin(Bracket::kFetch, kTrain)
        .Fetch(kSecond, 2_ms)
        .Cpu(1_ms)
        .End(Bracket::kFetch);  // a dataset reads a loader
    loop.Forward(2_ms).Begin(Bracket::kBackward).Backward(1_ms).Cpu(1_ms).End(Bracket::kBackward);
    loop.Begin(Bracket::kOptimizer, kAdam).Optimizer(kDiscriminator, 1_ms).End(Bracket::kOptimizer);  // SAM
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 5u);
  EXPECT_EQ(loop.steps()[2].phase(Phase::kFetch), 3_ms);
  EXPECT_EQ(loop.steps()[2].fetches, 1);
  EXPECT_EQ(loop.steps()[2].backwards, 1);
  EXPECT_EQ(loop.steps()[2].optimizer_steps, 1);
  EXPECT_EQ(loop.steps()[2].phase(Phase::kBackward), 2_ms);
}

TEST(BrokenLoops, NoStepAtAll) {
  Script loop;
  loop.LoaderStart(kTrain, 1_ms).Fetch(kTrain, 1_ms).Fetch(kTrain, 1_ms).Finish();
  EXPECT_EQ(loop.steps().size(), 0u);
  EXPECT_EQ(loop.timeline().step_thread(), 0u);
  EXPECT_EQ(loop.sink().fetches.size(), 2u);
  Script empty;
  empty.Finish();
  EXPECT_EQ(empty.timeline().lead_ns(), 0);
}

TEST(BrokenLoops, ProgramGoesOnAfterTheLoop) {
  Script loop;
  for (int i = 0; i < 10; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Cpu(30'000_ms).GilWait(5_ms).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[9].wall(), 6_ms + 100_us);
}

TEST(BrokenLoops, ALookAtABatchBeforeTheLoop) {
  Script loop;
  loop.LoaderStart(kTrain, 1_ms).Fetch(kTrain, 1_ms).Cpu(100_ms).LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 10; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 1);
  EXPECT_EQ(loop.steps()[0].wall(), 7_ms);
  EXPECT_EQ(loop.timeline().lead_ns(), 102_ms);
}

TEST(BrokenLoops, StepsCloseWhileTheLoopRuns) {
  Script loop;
  for (int i = 0; i < 100; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  EXPECT_GE(loop.timeline().steps_closed(), 98);
  Script slow;  // too slow to wait for the 32nd
  for (int i = 0; i < 4; ++i) slow.Fetch(kTrain, 1_ms).Forward(2'000_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  EXPECT_EQ(slow.timeline().steps_closed(), 3);
}

}  // namespace
}  // namespace trainperf
