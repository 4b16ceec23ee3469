// Where the first step starts when nothing is fetched.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

void Compile(Script& loop, int64_t ns) { loop.Begin(Bracket::kCompile).Cpu(ns).End(Bracket::kCompile); }

void Train(Script& loop, int steps) {
  for (int i = 0; i < steps; ++i) loop.Cpu(2_ms).Backward(3_ms).Optimizer(kAdam, 1_ms);
  loop.Finish();
}

TEST(FirstStep, BeginsWithTheCompilationsOfItsForward) {
  Script loop;
  loop.Begin(Bracket::kUserPhase).End(Bracket::kUserPhase).Cpu(500_ms);  // imports
  Compile(loop, 300_ms);
  loop.Cpu(20_ms);
  Compile(loop, 100_ms);  // after a graph break
  loop.Cpu(1_ms);
  Train(loop, 10);
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kForward), 423_ms);
  EXPECT_EQ(loop.steps()[0].compile_ns, 400_ms);
  EXPECT_TRUE(loop.steps()[0].has(kWarmUp));
  EXPECT_EQ(loop.steps()[0].wall(), 427_ms);
  ASSERT_EQ(loop.Spans(SpanKind::kCompile).size(), 2u);
  EXPECT_EQ(loop.Spans(SpanKind::kCompile)[0].step, 0);
}

TEST(FirstStep, IsNotAWarmUpLongBefore) {
  Script loop;
  Compile(loop, 300_ms);
  loop.Cpu(2000_ms);  // loads its data
  Compile(loop, 100_ms);
  Train(loop, 10);
  EXPECT_EQ(loop.steps()[0].compile_ns, 100_ms);
  EXPECT_EQ(loop.steps()[0].wall(), 106_ms);
  EXPECT_EQ(loop.Spans(SpanKind::kCompile)[0].step, -1);
  Script never;
  Compile(never, 300_ms);
  never.Cpu(2000_ms);
  Train(never, 10);
  EXPECT_EQ(never.steps()[0].compile_ns, 0);
  EXPECT_EQ(never.steps()[0].wall(), 4_ms);
}

TEST(FirstStep, AFetchComesBeforeCompilations) {
  Script loop;
  Compile(loop, 300_ms);
  loop.Fetch(1, 5_ms);
  Compile(loop, 100_ms);
  Train(loop, 1);
  ASSERT_EQ(loop.steps().size(), 1u);
  EXPECT_EQ(loop.steps()[0].compile_ns, 100_ms);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 5_ms);
  EXPECT_EQ(loop.steps()[0].wall(), 111_ms);
}

TEST(FirstStep, CompilationsOfAValidationAreNotIt) {
  Script loop;
  loop.Begin(Bracket::kEval, 5);
  Compile(loop, 300_ms);
  loop.End(Bracket::kEval);
  Train(loop, 4);
  ASSERT_EQ(loop.steps().size(), 4u);
  EXPECT_EQ(loop.steps()[0].wall(), 4_ms);
}

// With run.step() and no backward, `lead_ns` after the first mark.
size_t CallsAtTheEnd(int calls, int64_t lead_ns) {
  Script loop;
  loop.End(Bracket::kCompile).Cpu(lead_ns);
  for (int i = 0; i < calls; ++i) loop.Cpu(4_ms).RunStep();
  loop.Finish();
  return loop.steps().size();
}

TEST(FirstStep, CallsOfStepAtTheEndAreAsManySteps) {
  EXPECT_EQ(CallsAtTheEnd(100, 0), 100u);
  EXPECT_EQ(CallsAtTheEnd(100, 30_ms), 100u);
  EXPECT_EQ(CallsAtTheEnd(100, 3000_ms), 99u);  // the program's beginning is no step
  EXPECT_EQ(CallsAtTheEnd(2, 0), 2u);
  EXPECT_EQ(CallsAtTheEnd(1, 0), 0u);
}

// With run.step() and nothing else, `set_up_ns` after the watch's beginning.
std::vector<Step> OnlyCalls(int64_t set_up_ns) {
  Script loop;
  loop.WatchBegins().Cpu(set_up_ns);
  for (int i = 0; i < 10; ++i) loop.Cpu(3_ms).GilWait(1_ms).RunStep();
  loop.Finish();
  return loop.steps();
}

TEST(FirstStep, OfALoopThatHasNothingElseBeginsWithTheWatch) {
  const std::vector<Step> steps = OnlyCalls(0);
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[0].wall(), 4_ms);
  EXPECT_EQ(steps[0].mechanism(Mechanism::kGilWait), 1_ms);
  EXPECT_EQ(steps[0].mechanism(Mechanism::kBlocked), 0);  // its clocks were read
  EXPECT_TRUE(steps[0].has(kWarmUp));
}

TEST(FirstStep, OfALoopThatHasNothingElseIsNotTheSetUp) {
  EXPECT_EQ(OnlyCalls(3_ms).size(), 10u);
  EXPECT_EQ(OnlyCalls(3_ms)[0].wall(), 7_ms);
  const std::vector<Step> steps = OnlyCalls(5_ms);
  ASSERT_EQ(steps.size(), 9u);
  EXPECT_EQ(steps[0].wall(), 4_ms);
}

TEST(FirstStep, BeginsWithTheLoopsFirstMarkIfThereIsOne) {
  Script loop;
  loop.WatchBegins().Cpu(1000_ms);
  for (int i = 0; i < 10; ++i) loop.Begin(Bracket::kUserPhase).Cpu(4_ms).End(Bracket::kUserPhase).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].wall(), 4_ms);
}

TEST(FirstStep, BeginsWithTheWatchOnlyOnTheThreadThatBeganIt) {
  Script loop;
  loop.On(2).WatchBegins().On(1);
  for (int i = 0; i < 10; ++i) loop.Cpu(4_ms).RunStep();
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 9u);
}

TEST(FirstStep, AValidationDoesNotMakeItOne) {
  Script loop;
  loop.End(Bracket::kCompile).Cpu(1000_ms).RunStep();
  loop.Cpu(4_ms).Begin(Bracket::kEval, 5).Cpu(1_ms).End(Bracket::kEval, 5).RunStep();
  for (int i = 0; i < 9; ++i) loop.Cpu(4_ms).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].wall(), 5_ms);
}

TEST(FirstStep, IsNoneThatLacksWhatTheOthersHave) {
  Script loop;
  loop.WatchBegins().Cpu(4_ms).RunStep();
  for (int i = 0; i < 10; ++i) loop.Cpu(2_ms).Backward(2_ms).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].backwards, 1);
  Script fetching;
  fetching.End(Bracket::kCompile).Cpu(4_ms).RunStep();
  for (int i = 0; i < 10; ++i) fetching.Fetch(1, 2_ms).Cpu(2_ms).RunStep();
  fetching.Finish();
  EXPECT_EQ(fetching.steps().size(), 10u);
}

TEST(FirstStep, CallsOfStepAtTheBeginningMakeNoEmptyStep) {
  Script loop;
  loop.End(Bracket::kCompile).Cpu(100_us);
  for (int i = 0; i < 10; ++i) loop.RunStep().Cpu(4_ms);
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].wall(), 4_ms);
}

// Ten calls at the beginning of the body, and then `tail_ns` until the watch ends.
std::vector<Step> CallsFirst(int64_t lead_ns, int64_t tail_ns) {
  Script loop;
  loop.WatchBegins().Cpu(lead_ns);
  for (int i = 0; i < 9; ++i) loop.RunStep().Cpu(4_ms);
  loop.RunStep().Cpu(tail_ns / 2).Blocked(tail_ns / 2).WatchEnds().Cpu(20_ms);  // the probes are taken out
  loop.Finish();
  return loop.steps();
}

TEST(FirstStep, IsNotWhatACallbackTrainsBeforeTheLoop) {
  constexpr uint32_t kCallback = 40;
  for (const bool validating : {false, true}) {
    Script loop;
    if (validating) {
      loop.Begin(Bracket::kUserPhase, 0, -1, 0, Phase::kValidation);
    } else {
      loop.Begin(Bracket::kCallback, kCallback);
    }
    loop.LoaderStart(kSecond, 1_ms);
    for (int i = 0; i < 50; ++i) loop.Fetch(kSecond, 1_ms).Forward(1_ms).Backward(1_ms).Optimizer(kDiscriminator, 1_ms);
    loop.Exhausted(kSecond);
    validating ? loop.End(Bracket::kUserPhase, 0, Phase::kValidation) : loop.End(Bracket::kCallback);
    loop.LoaderStart(kTrain, 1_ms);
    for (int i = 0; i < 40; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain).Finish();
    ASSERT_EQ(loop.steps().size(), 40u) << validating;
    EXPECT_EQ(loop.steps()[0].wall(), 7_ms) << validating;
    EXPECT_EQ(loop.timeline().incomplete_steps(), 0) << validating;
  }
}

TEST(LastStep, OfALoopThatCallsStepFirstEndsWithTheWatch) {
  const std::vector<Step> steps = CallsFirst(100_us, 6_ms);
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[9].wall(), 6_ms);
  EXPECT_EQ(steps[9].mechanism(Mechanism::kBlocked), 3_ms);  // its clocks were read
}

TEST(LastStep, IsOneAlsoWhereTheFirstWasMuchSlower) {
  Script loop;
  loop.WatchBegins().Cpu(100_us).RunStep().Cpu(1000_ms);
  for (int i = 0; i < 9; ++i) loop.RunStep().Cpu(4_ms);
  loop.WatchEnds();
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 10u);
}

TEST(LastStep, IsNotWhatTheProgramDoesAfterTheLoop) {
  EXPECT_EQ(CallsFirst(100_us, 40_ms).size(), 9u);
  EXPECT_EQ(CallsFirst(100_us, 400_us).size(), 9u);  // called once more, after the loop
  // The first body was a step: the loop calls at its end, and after the last call there is none.
  EXPECT_EQ(CallsFirst(4_ms, 4_ms).size(), 10u);
  // The program's beginning: where in the body it calls is not known.
  EXPECT_EQ(CallsFirst(1000_ms, 4_ms).size(), 9u);
}

TEST(LastStep, OfALoopThatCallsStepFirstMayFetchInItsBody) {
  Script loop;
  loop.WatchBegins().Cpu(100_us);
  for (int i = 0; i < 10; ++i) loop.RunStep().Fetch(1, 2_ms).Cpu(2_ms);
  loop.WatchEnds();
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
  Script over_a_loader;
  over_a_loader.WatchBegins();
  for (int i = 0; i < 10; ++i) over_a_loader.Fetch(1, 500_us).RunStep().Cpu(4_ms);
  over_a_loader.Exhausted(1).WatchEnds();
  over_a_loader.Finish();
  EXPECT_EQ(over_a_loader.steps().size(), 10u);
}

// A notebook's cells: what is between two of them is in no step, whatever marks it leaves.
TEST(LastStep, EndsWithItsCell) {
  Script loop;
  loop.sink().touching = false;
  loop.WatchBegins();
  for (int cell = 0; cell < 3; ++cell) {
    loop.WatchBegins().Cpu(1_ms);
    for (int i = 0; i < 10; ++i) loop.Fetch(1, 500_us).Backward(2_ms).Optimizer(1, 300_us);
    loop.Exhausted(1).Cpu(200_us).WatchEnds();
    loop.Begin(Bracket::kGc).Cpu(5_ms).End(Bracket::kGc).Blocked(3000_ms).Sample(SampleState::kBlocked);
    loop.Begin(Bracket::kGc).Cpu(5_ms).End(Bracket::kGc);
  }
  loop.WatchEnds();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 30u);
  for (const Step& step : loop.steps()) EXPECT_LT(step.wall(), 20_ms);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(LastStep, OfACellThatOnlyCallsStepEndsWithIt) {
  Script loop;
  loop.sink().touching = false;
  for (int cell = 0; cell < 3; ++cell) {
    loop.WatchBegins();
    for (int i = 0; i < 10; ++i) loop.Cpu(4_ms).RunStep();
    loop.Cpu(10_us).WatchEnds().Blocked(3000_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 30u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.wall(), 4_ms);
}

// What a later cell does before its loop is told as the first one's is.
TEST(FirstStep, OfALaterCellIsAsOfTheFirst) {
  const auto steps_of = [](int cells, auto&& before) {
    Script loop;
    loop.sink().touching = false;
    for (int cell = 0; cell < cells; ++cell) {
      loop.WatchBegins().Cpu(1_ms);
      if (cell + 1 == cells) before(loop);
      for (int i = 0; i < 10; ++i) loop.Fetch(1, 500_us).Cpu(1_ms).Backward(2_ms).Optimizer(1, 300_us);
      loop.Exhausted(1).WatchEnds().Blocked(3000_ms);
    }
    loop.Finish();
    const std::vector<Step>& steps = loop.steps();
    EXPECT_EQ(steps.size(), 10u * cells);
    EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
    std::vector<int64_t> walls, phases;
    for (size_t i = 10u * (cells - 1); i < steps.size(); ++i) {
      walls.push_back(steps[i].wall());
      for (int phase = 0; phase < kPhaseCount; ++phase) phases.push_back(steps[i].phase(static_cast<Phase>(phase)));
    }
    return std::pair(walls, phases);
  };
  const auto evaluate = [](Script& loop, uint8_t flags) {
    for (int i = 0; i < 5; ++i) loop.Fetch(2, 1_ms, flags).Cpu(4_ms);
    loop.Exhausted(2, flags);
  };
  const std::map<std::string, std::function<void(Script&)>> preludes = {
      {"no_grad", [&](Script& loop) { evaluate(loop, kGradDisabled); }},
      {"eval mode",
       [&](Script& loop) {
         loop.Begin(Bracket::kEval, 7).Cpu(10_us);
         evaluate(loop, 0);
         loop.Begin(Bracket::kGc).Cpu(10_us).End(Bracket::kGc).End(Bracket::kEval);
       }},
      {"run.phase",
       [&](Script& loop) {
         loop.Begin(Bracket::kUserPhase, 0, -1, 0, Phase::kValidation);
         evaluate(loop, 0);
         loop.End(Bracket::kUserPhase, 0, Phase::kValidation);
       }},
      {"compiling", [](Script& loop) { loop.Begin(Bracket::kCompile).Cpu(500_ms).End(Bracket::kCompile); }},
      {"a checkpoint", [](Script& loop) { loop.Begin(Bracket::kCheckpoint).Cpu(50_ms).End(Bracket::kCheckpoint); }},
  };
  for (const auto& [name, before] : preludes) EXPECT_EQ(steps_of(1, before), steps_of(2, before)) << name;
}

TEST(FirstStep, OfALaterCellThatOnlyCallsStepHasItsWaits) {
  Script loop;
  loop.sink().touching = false;
  for (int cell = 0; cell < 2; ++cell) {
    loop.WatchBegins();
    for (int i = 0; i < 10; ++i) loop.Cpu(1_ms).GilWait(3_ms).RunStep();
    loop.WatchEnds().Blocked(3000_ms);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.mechanism(Mechanism::kGilWait), 3_ms) << step.index;
}

TEST(FirstStep, OfALaterCellWithoutALoaderIsAsOfTheFirst) {
  const auto first_of = [](int cells, auto&& before) {
    Script loop;
    loop.sink().touching = false;
    for (int cell = 0; cell < cells; ++cell) {
      loop.WatchBegins().Cpu(1_ms);
      before(loop);
      for (int i = 0; i < 10; ++i) loop.Cpu(1_ms).Backward(2_ms).Optimizer(1, 300_us);
      loop.WatchEnds().Blocked(3000_ms);
    }
    loop.Finish();
    EXPECT_EQ(loop.steps().size(), 10u * cells);
    return loop.steps()[10u * (cells - 1)].wall();
  };
  const auto compiles = [](Script& loop) { loop.Begin(Bracket::kCompile).Cpu(500_ms).End(Bracket::kCompile); };
  const auto nothing = [](Script&) {};
  EXPECT_EQ(first_of(1, compiles), first_of(2, compiles));
  EXPECT_EQ(first_of(1, nothing), first_of(2, nothing));
}

TEST(LastStep, IsNotWhatTheProbesRemovalDoes) {
  const auto last_of = [](auto&& removal) {
    Script loop;
    loop.WatchBegins().Cpu(100_us);
    for (int i = 0; i < 10; ++i) loop.RunStep().Cpu(4_ms);
    loop.WatchEnds();
    removal(loop);
    loop.Finish();
    return std::pair(loop.steps(), loop.sink().details);
  };
  for (const auto& [steps, details] : {
           last_of([](Script& loop) { loop.Cpu(1_ms).Begin(Bracket::kGc).Cpu(1_ms).End(Bracket::kGc).Cpu(1_ms); }),
           last_of([](Script& loop) { loop.Cpu(1_ms).GilWait(1_ms); }),
           last_of([](Script& loop) { loop.Cpu(2_ms).Sample(SampleState::kPython).Hold(1, 1).Beside(2, 1); }),
           last_of([](Script& loop) { loop.Cpu(2_ms).Call(HostCall::kStreamSync, 1_ms); }),
       }) {
    ASSERT_EQ(steps.size(), 10u);
    EXPECT_EQ(steps[9].wall(), 4_ms);
    EXPECT_EQ(details.size(), 0u);
  }
}

TEST(FirstStep, IsNotWhatTheSamplerSawBeforeTheWatch) {
  Script loop;
  EXPECT_EQ(loop.timeline().first_step_ns(), -1);
  loop.Cpu(50_ms).Sample(SampleState::kPython).Hold(1, 1).GilWait(1_ms).WatchBegins();
  for (int i = 0; i < 10; ++i) loop.Cpu(4_ms).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.timeline().first_step_ns(), loop.steps()[0].start_ns);
  EXPECT_EQ(loop.steps()[0].wall(), 4_ms);
  EXPECT_EQ(loop.sink().details.size(), 0u);
}

TEST(FirstStep, AFetchedBatchIsAStepHoweverLongItsLoaderTookToStart) {
  Script loop;
  loop.End(Bracket::kCompile).Cpu(1000_ms);
  loop.Fetch(1, 3000_ms).Cpu(4_ms).RunStep();
  for (int i = 0; i < 9; ++i) loop.Fetch(1, 1_ms).Cpu(4_ms).RunStep();
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[0].wall(), 3004_ms);
}

}  // namespace
}  // namespace trainperf
