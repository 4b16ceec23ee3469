// Which mechanism a nanosecond gets: clocks, GIL waits, collections, throttling; flags, spans and details.

#include "gtest/gtest.h"
#include "trainperf/event/names.h"
#include "trainperf/timeline/script.h"
#include "trainperf/timeline/stretch_meter.h"

namespace trainperf {
namespace {

TEST(Attribution, CpuRunDelayAndBlockedAreExact) {
  Script loop;
  Loop(loop, 10, [&](int) { loop.Cpu(3_ms).Descheduled(2_ms).Blocked(1_ms); });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kUnknown), 3_ms);  // on CPU, and no sample says more
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kDescheduled), 2_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kBlocked), 1_ms);
  EXPECT_EQ(step.at(Phase::kFetch, Mechanism::kBlocked), 100_us);
  EXPECT_TRUE(step.has(kHostStalled));
}

TEST(Attribution, GilWaitsAreExactAndNamed) {
  Script loop;
  Loop(loop, 10, [&](int) {
    // The run delay inside of a wait is the wait's, not the machine's.
    loop.Cpu(1_ms).GilWait(2_ms, 5, 77, 500_us, kGilStillHeld).Cpu(1_ms).GilWait(1_ms, 6, 78).GilWait(1_ms, 5, 77);
  });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGilWait), 4_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kGilWait), 4_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kDescheduled), 0);
  EXPECT_TRUE(step.has(kGilContended));
  int64_t by_holder[10] = {}, counts[10] = {};
  for (const Detail& detail : loop.Details(DetailKind::kGilWait)) {
    if (detail.step != 5) continue;
    EXPECT_EQ(detail.phase, Phase::kForward);
    EXPECT_EQ(detail.stack, detail.thread == 5 ? 77u : 78u);
    by_holder[detail.thread] += detail.ns;
    counts[detail.thread] += detail.count;
  }
  EXPECT_EQ(by_holder[5], 3_ms);
  EXPECT_EQ(counts[5], 1);  // a slice that timed out is no wait of its own
  EXPECT_EQ(by_holder[6], 1_ms);
  int64_t waits_ns = 0;
  for (const Segment& segment : step.segments) {
    if (segment.mechanism == Mechanism::kGilWait) waits_ns += segment.end_ns - segment.start_ns;
  }
  EXPECT_EQ(waits_ns, 4_ms);
}

// What takes the GIL's place on a free-threaded interpreter keeps its name in every phase, and is no wait for the GIL.
TEST(Attribution, PausesOfAllThreadsAndLocksOfObjectsAreCausesOfTheirOwn) {
  Script loop;
  Loop(loop, 10, [&](int) {
    loop.Cpu(1_ms).RuntimeWait(GilWaitKind::kWorldStop, 3_ms, 5, 77).Cpu(1_ms);
    loop.Begin(Bracket::kCheckpoint).RuntimeWait(GilWaitKind::kLock, 2_ms, 6, 78).Cpu(1_ms).End(Bracket::kCheckpoint);
  });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.mechanism(Mechanism::kWorldStop), 3_ms);
  EXPECT_EQ(step.at(Phase::kCheckpoint, Mechanism::kObjectLock), 2_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kGilWait), 0);
  EXPECT_FALSE(step.has(kGilContended));
  EXPECT_EQ(CauseOf(Phase::kCheckpoint, Mechanism::kObjectLock, false), Cause::kObjectLock);
  EXPECT_TRUE(loop.Details(DetailKind::kGilWait).empty());
  int64_t stopped_ns = 0, locked_ns = 0;
  for (const Detail& detail : loop.Details(DetailKind::kWorldStop)) {
    if (detail.step == 5 && detail.thread == 5 && detail.stack == 77) stopped_ns += detail.ns;
  }
  for (const Detail& detail : loop.Details(DetailKind::kObjectLock)) {
    if (detail.step == 5 && detail.thread == 6 && detail.stack == 78) locked_ns += detail.ns;
  }
  EXPECT_EQ(stopped_ns, 3_ms);
  EXPECT_EQ(locked_ns, 2_ms);
}

// A wait includes the wake-up: without the holder there would have been no sleep to wake up from.
TEST(Attribution, RunDelayInsideAWaitIsTheWaits) {
  Script loop;
  Loop(loop, 10, [&](int) {
    loop.Cpu(1_ms).GilWait(5_ms, 5, 77, 1_ms, kGilStillHeld).GilWait(3_ms, 5, 77, 2_ms).Descheduled(1_ms);
    loop.Begin(Bracket::kGc, 0, 2).GilWait(1_ms, 5, 77, 500_us).Cpu(1_ms).End(Bracket::kGc, 0);
  });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGilWait), 9_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kDescheduled), 1_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGc), 1_ms);
}

TEST(Attribution, RunDelayInACollectionIsTheMachines) {
  Script loop;
  Loop(loop, 10, [&](int) { loop.Begin(Bracket::kGc, 0, 2).Cpu(3_ms).Descheduled(2_ms).End(Bracket::kGc, 0); });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGc), 3_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kDescheduled), 2_ms);
}

TEST(Attribution, CollectionsCountWithoutTheGilWaitInside) {
  Script loop;
  Loop(loop, 10,
       [&](int) { loop.Cpu(1_ms).Begin(Bracket::kGc, 0, 2).Cpu(3_ms).GilWait(1_ms).End(Bracket::kGc, 100).Cpu(1_ms); });
  const Step& step = loop.steps()[5];
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGc), 3_ms);
  EXPECT_EQ(step.at(Phase::kForward, Mechanism::kGilWait), 1_ms);
  EXPECT_EQ(step.phase(Phase::kForward), 6_ms);  // a collection does not end the forward
  EXPECT_TRUE(step.has(kHostStalled));
  EXPECT_EQ(loop.Spans(SpanKind::kGc).size(), 10u);
  EXPECT_EQ(loop.Spans(SpanKind::kGc)[0].value, 2);
  for (const Detail& detail : loop.Details(DetailKind::kGc)) {
    EXPECT_EQ(detail.code, 2);
    EXPECT_EQ(detail.ns, 3_ms);
    EXPECT_EQ(detail.count, 1);
    EXPECT_EQ(detail.phase, Phase::kForward);
  }
}

TEST(Attribution, RunDelayIsCarriedForwardWhenNotRead) {
  StretchMeter meter;
  Event mark{};
  mark.flags = kHasRunDelay;
  mark.run_delay_ns = 1_ms;
  meter.Start(mark);
  mark.end_ns = 10_us;
  mark.cpu_ns = 10_us;
  mark.run_delay_ns = 0;
  mark.flags = 0;
  Measures m = meter.Close(mark, false);
  EXPECT_EQ(m.delay, 0);
  mark.end_ns = 5'010_us;
  mark.cpu_ns = 1'010_us;
  mark.run_delay_ns = 4_ms;
  mark.flags = kHasRunDelay;
  m = meter.Close(mark, false);
  EXPECT_EQ(m.delay, 3_ms);
  EXPECT_EQ(m.blocked, 1_ms);
  EXPECT_EQ(m.cpu, 1_ms);
}

TEST(Attribution, ClocksThatDisagreeNeverBreakTheSum) {
  StretchMeter meter;
  Event mark{};
  mark.flags = kHasRunDelay;
  mark.cpu_ns = 5_ms;
  mark.run_delay_ns = 5_ms;
  meter.Start(mark);
  mark.end_ns = 1_ms;
  mark.cpu_ns = 9_ms;  // more than the wall time
  mark.run_delay_ns = 9_ms;
  EXPECT_EQ(meter.Close(mark, false).total(), 1_ms);
  mark.end_ns = 2_ms;
  mark.cpu_ns = 0;  // backwards
  mark.run_delay_ns = 0;
  const Measures m = meter.Close(mark, false);
  EXPECT_EQ(m.total(), 1_ms);
  EXPECT_EQ(m.cpu, 0);
}

TEST(Attribution, EstimatedWaitsAreClippedToTheStretch) {
  Script loop;
  Loop(loop, 3, [&](int) { loop.Cpu(1_ms).GilWait(2_ms); });
  StretchMeter meter;
  Event mark{};
  mark.end_ns = 10_ms;
  meter.Start(mark);
  int64_t start_ns = 0, end_ns = 0;
  Event wait{};
  wait.start_ns = 8_ms;
  wait.end_ns = 12_ms;
  EXPECT_EQ(meter.AddGilWait(wait, &start_ns, &end_ns), 2_ms);
  EXPECT_EQ(start_ns, 10_ms);
  wait.start_ns = 11_ms;  // overlaps the one before
  wait.end_ns = 13_ms;
  EXPECT_EQ(meter.AddGilWait(wait, &start_ns, &end_ns), 1_ms);
  EXPECT_EQ(start_ns, 12_ms);
  mark.end_ns = 20_ms;
  EXPECT_EQ(meter.Close(mark, false).gil, 3_ms);
}

TEST(Attribution, ThrottledTimeIsTakenFromDescheduled) {
  Script loop;
  loop.Throttled(0);
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 100_us).Cpu(1_ms).Descheduled(i >= 20 ? 4_ms : 0).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Cpu(1_ms).Throttled(i >= 20 ? (i - 19) * 3_ms : 0);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  EXPECT_EQ(loop.steps()[10].mechanism(Mechanism::kThrottled), 0);
  for (size_t i = 20; i < 40; ++i) {
    EXPECT_EQ(loop.steps()[i].at(Phase::kForward, Mechanism::kThrottled), 3_ms) << i;
    EXPECT_EQ(loop.steps()[i].at(Phase::kForward, Mechanism::kDescheduled), 1_ms) << i;
    EXPECT_TRUE(loop.steps()[i].has(kHostStalled));
  }
}

TEST(Attribution, ThrottledReadingsOverSeveralSteps) {
  Script loop;
  loop.Throttled(1'000_ms);  // from before the watch
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 100_us).Cpu(1_ms).Descheduled(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    if (i % 10 == 9) loop.Throttled(1'000_ms + (i + 1) * 2_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.mechanism(Mechanism::kThrottled), 2_ms) << step.index;
}

TEST(Attribution, ThrottlingThatIsReadBeforeTheMarkOfTheStretchItStopped) {
  Script loop;
  loop.Throttled(0);
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 100_us).Cpu(1_ms).Descheduled(80_ms).Throttled((i + 1) * 80_ms).Cpu(1_ms);
    loop.Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Throttled(40 * 80_ms).Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.mechanism(Mechanism::kThrottled), 80_ms) << step.index;
}

TEST(Attribution, StepsThatWaitForASampleAreOfBeforeTheFirstReading) {
  Script loop;
  loop.timeline().AwaitSample();
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 100_us).Cpu(1_ms).Descheduled(1_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Throttled(0).Throttled(1'000_ms).Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.mechanism(Mechanism::kThrottled), 0) << step.index;
}

TEST(Attribution, ThrottlingOfOthersIsNotOurs) {
  Script loop;
  loop.Throttled(0);
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 100_us).Cpu(5_ms).Backward(2_ms).Optimizer(kAdam, 1_ms).Throttled((i + 1) * 50_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (const Step& step : loop.steps()) EXPECT_EQ(step.mechanism(Mechanism::kThrottled), 0);
}

TEST(Attribution, StepsDoNotWaitForAHostReadingForEver) {
  Script loop;
  loop.Throttled(0);
  for (int i = 0; i < 100; ++i) loop.Fetch(kTrain, 100_us).Descheduled(100_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  EXPECT_GE(loop.timeline().steps_closed(), 70);
  loop.timeline().AdvanceTo(loop.now() + 3'000_ms);
  EXPECT_GE(loop.timeline().steps_closed(), 98);
}

TEST(Attribution, CheckpointsAndLoggingAreSpans) {
  Script loop;
  Loop(loop, 10, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 3) loop.Begin(Bracket::kCheckpoint).Blocked(8_ms).End(Bracket::kCheckpoint, 4096);
    if (i == 4) loop.Begin(Bracket::kLogging).Blocked(2_ms).End(Bracket::kLogging);
    if (i == 5) loop.Begin(Bracket::kLogging).Blocked(500_us).End(Bracket::kLogging);
    if (i == 6) {  // a log call that calls another, such as a callback of the logger's
      loop.Begin(Bracket::kLogging).Begin(Bracket::kLogging).Blocked(2_ms);
      loop.End(Bracket::kLogging).End(Bracket::kLogging);
    }
  });
  ASSERT_EQ(loop.Spans(SpanKind::kCheckpoint).size(), 1u);
  EXPECT_EQ(loop.Spans(SpanKind::kCheckpoint)[0].value, 4096);
  EXPECT_EQ(loop.Spans(SpanKind::kCheckpoint)[0].step, 3);
  EXPECT_TRUE(loop.steps()[3].has(kHasCheckpoint));
  EXPECT_TRUE(loop.steps()[3].has(kHostStalled));
  EXPECT_EQ(loop.steps()[3].phase(Phase::kCheckpoint), 8_ms);
  EXPECT_EQ(loop.Spans(SpanKind::kLogging).size(), 2u);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kLogging), 500_us);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kForward), 1_ms);
}

TEST(Attribution, ACallbackIsOtherAndInterruptsNothing) {
  constexpr uint32_t kCallback = 40;
  Script loop;
  for (int i = 0; i < 10; ++i) {
    loop.Fetch(kTrain, 1_ms).Begin(Bracket::kOptimizer, kAdam).Forward(2_ms);
    loop.Begin(Bracket::kCallback, kCallback).Blocked(3_ms).End(Bracket::kCallback);  // just before backward
    loop.Backward(2_ms);
    loop.Begin(Bracket::kCallback, kCallback).Cpu(500_us).End(Bracket::kCallback);  // after it, in the closure
    loop.Cpu(1_ms).End(Bracket::kOptimizer);
    loop.Begin(Bracket::kCallback, kCallback).Begin(Bracket::kCheckpoint).Blocked(4_ms).End(Bracket::kCheckpoint);
    loop.End(Bracket::kCallback);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.Phases(Phase::kForward), 20_ms);
  EXPECT_EQ(loop.Phases(Phase::kBackward), 20_ms);
  EXPECT_EQ(loop.Phases(Phase::kOptimizer), 10_ms);
  EXPECT_EQ(loop.Phases(Phase::kOther), 35_ms);
  EXPECT_EQ(loop.Phases(Phase::kCheckpoint), 40_ms);
  EXPECT_EQ(loop.Spans(SpanKind::kCallback).size(), 20u);  // those of a millisecond or more
  EXPECT_EQ(loop.Spans(SpanKind::kCallback)[0].object, kCallback);
}

TEST(Attribution, CompilationIsWarmUp) {
  Script loop;
  Loop(loop, 10, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 1) loop.Begin(Bracket::kCompile).Cpu(300_ms).Begin(Bracket::kCompile).Cpu(100_ms).End(Bracket::kCompile);
    if (i == 1) loop.End(Bracket::kCompile).Cpu(1_ms);
  });
  EXPECT_EQ(loop.steps()[1].compile_ns, 400_ms);
  EXPECT_TRUE(loop.steps()[0].has(kWarmUp));
  EXPECT_TRUE(loop.steps()[1].has(kWarmUp));
  EXPECT_FALSE(loop.steps()[2].has(kWarmUp));
  EXPECT_EQ(loop.steps()[1].phase(Phase::kForward), 402_ms);
  EXPECT_EQ(loop.Spans(SpanKind::kCompile).size(), 1u);
}

TEST(Attribution, HoldsAreKeptByPhaseOfTheStepThread) {
  Script loop;
  Loop(loop, 3, [&](int) { loop.Cpu(1_ms).Hold(5, 70).Hold(5, 70).Hold(6, 71); });
  for (const Detail& detail : loop.Details(DetailKind::kHold)) {
    EXPECT_EQ(detail.phase, Phase::kForward);
    EXPECT_EQ(detail.ns, detail.thread == 5 ? 8_ms : 4_ms);
  }
  EXPECT_EQ(loop.Details(DetailKind::kHold).size(), 6u);
}

TEST(Attribution, WhoStoodBesideASleepIsKeptByItsPhase) {
  Script loop;
  Loop(loop, 3, [&](int) { loop.Blocked(2_ms).Beside(5, 70).Beside(6, 71, 4_ms, BesideSign::kStill); });
  const std::vector<Detail> found = loop.Details(DetailKind::kBeside);
  ASSERT_EQ(found.size(), 6u);
  for (const Detail& detail : found) {
    EXPECT_EQ(detail.phase, Phase::kForward);
    EXPECT_EQ(detail.ns, 4_ms);
    EXPECT_EQ(detail.stack, detail.thread == 5 ? 70u : 71u);
    EXPECT_EQ(detail.code, detail.thread == 5 ? 0 : static_cast<int32_t>(BesideSign::kStill));
  }
  EXPECT_TRUE(loop.Details(DetailKind::kHold).empty());
}

TEST(Attribution, FetchesKnowTheirGilWait) {
  Script loop;
  for (int i = 0; i < 3; ++i) {
    loop.Begin(Bracket::kFetch, kTrain, 2).Cpu(1_ms).GilWait(3_ms).End(Bracket::kFetch);
    loop.Backward(1_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.sink().fetches.size(), 4u);
  const FetchRecord& fetch = loop.sink().fetches[1];
  EXPECT_EQ(fetch.gil_wait_ns, 3_ms);
  EXPECT_EQ(fetch.cpu_ns, 1_ms);
  EXPECT_EQ(fetch.ready, 2);
  EXPECT_EQ(fetch.step, 1);
  EXPECT_FALSE(fetch.first);
  EXPECT_TRUE(loop.sink().fetches[0].first);
  EXPECT_EQ(loop.steps()[1].at(Phase::kFetch, Mechanism::kGilWait), 3_ms);
}

TEST(Attribution, UserPhases) {
  Script loop;
  Loop(loop, 3, [&](int) {
    loop.Begin(Bracket::kUserPhase, 0, -1, 0, Phase::kTransfer).Cpu(1_ms).End(Bracket::kUserPhase, 0, Phase::kTransfer);
    loop.Forward(2_ms);
  });
  EXPECT_EQ(loop.steps()[1].phase(Phase::kTransfer), 1_ms);
  EXPECT_EQ(loop.steps()[1].phase(Phase::kForward), 2_ms);
}

TEST(Attribution, LostEventsMarkTheStep) {
  Script loop;
  Loop(loop, 5, [&](int i) {
    loop.Cpu(1_ms);
    if (i == 2) loop.timeline().MarkIncomplete();
  });
  for (const Step& step : loop.steps()) EXPECT_EQ(step.has(kIncomplete), step.index == 2);
}

TEST(Attribution, LateEventsAreCounted) {
  Script loop;
  Loop(loop, 5, [&](int i) {
    loop.Cpu(1_ms);
    if (i != 2) return;
    Event late{};
    late.kind = EventKind::kGilWait;
    late.thread = 1;
    late.start_ns = loop.now() - 20_ms;
    late.end_ns = loop.now() - 19_ms;
    loop.timeline().Add(late);
  });
  EXPECT_EQ(loop.timeline().late_events(), 1);
  EXPECT_EQ(loop.steps()[2].mechanism(Mechanism::kGilWait), 0);
}

// ---- Bounds

TEST(Bounds, AStepWithAMillionCollectionsAndWaitsDoesNotGrow) {
  Script loop;
  for (int i = 0; i < 40; ++i) loop.Fetch(kTrain, 1_ms).Backward(1_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 1_ms);
  for (uint32_t i = 0; i < 300'000; ++i) {
    loop.Cpu(1_us).Begin(Bracket::kGc, 0, i % 3).Cpu(1_us).End(Bracket::kGc).GilWait(1_us, 5, 1 + (i * 7919) % 50'000);
  }
  loop.Backward(1_ms).Optimizer(kAdam, 1_ms).Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 41u);
  const Step& step = loop.steps()[40];
  EXPECT_EQ(step.mechanism(Mechanism::kGilWait), 300_ms);
  EXPECT_EQ(step.mechanism(Mechanism::kGc), 300_ms);
  EXPECT_LE(step.segments.size(), 256u);
  int64_t waits_ns = 0, details = 0, collections = 0;
  for (const Detail& detail : loop.sink().details) {
    if (detail.step != 40) continue;
    ++details;
    if (detail.kind == DetailKind::kGilWait) waits_ns += detail.ns;
    if (detail.kind == DetailKind::kGc) collections += detail.count;
  }
  EXPECT_EQ(waits_ns, 300_ms);  // summed, not lost
  EXPECT_EQ(collections, 300'000);
  EXPECT_LE(details, 2048);
}

TEST(Bounds, SpansAndFetchesBeyondAPiecesOwnGoToTheSinkAtOnce) {
  Script loop;
  for (int i = 0; i < 40; ++i) loop.Fetch(kTrain, 1_ms).Backward(1_ms).Optimizer(kAdam, 1_ms);
  loop.Fetch(kTrain, 1_ms);
  for (int i = 0; i < 5000; ++i) loop.Begin(Bracket::kLogging).Blocked(2_ms).End(Bracket::kLogging).Fetch(kTrain, 1_us);
  loop.Backward(1_ms).Finish();
  EXPECT_EQ(loop.Spans(SpanKind::kLogging).size(), 5000u);
  for (const Span& span : loop.Spans(SpanKind::kLogging)) EXPECT_EQ(span.step, 40);
  EXPECT_EQ(loop.sink().fetches.size(), 5041u);
}

TEST(Bounds, EventsBeforeTheFirstBackward) {
  Script loop;
  loop.Begin(Bracket::kFetch, kTrain);
  for (int i = 0; i < 100'000; ++i) loop.On(2).GilWait(1_us).On(3).Hold(4, 4);  // a busy thread, for minutes
  loop.On(1).End(Bracket::kFetch).Forward(1_ms).Backward(1_ms).Optimizer(kAdam, 1_ms).Finish();
  ASSERT_EQ(loop.steps().size(), 1u);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 100_ms);  // its first fetch was not pushed out
}

TEST(Bounds, AValidationThatNeverEndsDoesNotHoldStepsBack) {
  Script loop;
  loop.Fetch(kTrain, 1_ms).Backward(1_ms).RunStep().Begin(Bracket::kEval, 5);
  for (int i = 0; i < 1000; ++i) loop.Fetch(kVal, 1_ms).Cpu(1_ms).RunStep();
  EXPECT_GE(loop.timeline().steps_closed(), 900);
  loop.Finish();
  EXPECT_EQ(loop.steps().size(), 1001u);
  EXPECT_EQ(loop.steps()[500].phase(Phase::kValidation), 2_ms);
}

TEST(Bounds, FewSegments) {
  TimelineOptions options;
  options.max_segments = 1;
  Script loop(options);
  loop.sink().max_segments = 1;
  Loop(loop, 5, [&](int) { loop.Cpu(1_ms).GilWait(1_ms).Cpu(2_ms); });
  EXPECT_EQ(loop.steps().size(), 5u);
}

}  // namespace
}  // namespace trainperf
