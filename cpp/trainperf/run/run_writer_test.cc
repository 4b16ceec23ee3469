#include "trainperf/run/run_writer.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/event/names.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string SumOfCauses() {
  std::string sql = "0";
  for (const char* cause : kCauseNames) sql += std::string(" + ") + cause + "_ns";
  return sql;
}

std::string SumOfPhases() {
  std::string sql = "0";
  for (const char* phase : kPhaseNames) sql += std::string(" + phase_") + phase + "_ns";
  return sql;
}

StepRecord PlainStep(int64_t index, int64_t start_ns, int64_t wall_ns, uint32_t flags = 0) {
  StepRecord step{};
  step.index = index;
  step.start_ns = start_ns;
  step.end_ns = start_ns + wall_ns;
  step.ns[static_cast<int>(Phase::kForward)][static_cast<int>(Mechanism::kNative)] = wall_ns;
  step.flags = flags;
  return step;
}

TEST(RunWriterTest, WritesAFileThatSaysWhatItIs) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->SetMeta("python", "3.11.7");
  writer->SetMeta("python", "3.11.8");
  writer->SetTier("gil_waits", "exact", "");
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Number(folder / "a.tpr", "PRAGMA application_id"), 0x54505246);
  EXPECT_EQ(Number(folder / "a.tpr", "PRAGMA user_version"), 9);
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM meta"), ElementsAre("ended|normally", "python|3.11.8"));
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT * FROM tier"), "gil_waits|exact|");
}

TEST(RunWriterTest, EveryRowSumsToItsWallTime) {
  for (const int max_rows : {16384, 64, 3}) {
    TestFolder folder;
    RunWriterOptions options;
    options.max_step_rows = max_rows;
    auto writer = Create(folder / "a.tpr", options);
    RandomRun run(1);
    for (int i = 0; i < 3000; ++i) run.Feed(*writer);
    ASSERT_TRUE(writer->Finish("normally").ok());
    for (const std::string table : {"step", "kept_step"}) {
      EXPECT_GT(Number(folder / "a.tpr", "SELECT COUNT(*) FROM " + table), 0);
      EXPECT_EQ(Number(folder / "a.tpr", "SELECT COUNT(*) FROM " + table + " WHERE wall_ns <> " + SumOfCauses()), 0);
      EXPECT_EQ(Number(folder / "a.tpr", "SELECT COUNT(*) FROM " + table + " WHERE wall_ns <> " + SumOfPhases()), 0);
    }
    EXPECT_EQ(Number(folder / "a.tpr", "SELECT SUM(wall_ns) FROM step"), run.now_ns() - 1'000'000'000);
    EXPECT_EQ(Number(folder / "a.tpr", "SELECT SUM(wall_ns) FROM section"), run.now_ns() - 1'000'000'000);
    EXPECT_EQ(Number(folder / "a.tpr", "SELECT SUM(ns) FROM phase_mechanism"), run.now_ns() - 1'000'000'000);
    EXPECT_EQ(Number(folder / "a.tpr", "SELECT SUM(steps) FROM wall_histogram"), 3000);
    EXPECT_EQ(Number(folder / "a.tpr", "SELECT SUM(steps) FROM section"), 3000);
  }
}

TEST(RunWriterTest, WhatIsTakenBackLeavesNoTrace) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  auto never = Create(folder / "b.tpr");
  RandomRun evaluation(1);
  for (int i = 0; i < 300; ++i) {
    evaluation.Feed(*writer);
    if (i % 100 == 50) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  writer->OnTakenBack();
  RandomRun of_one(2), of_other(2);
  for (int i = 0; i < 100; ++i) {
    of_one.Feed(*writer);
    of_other.Feed(*never);
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  ASSERT_TRUE(never->Finish("normally").ok());
  for (const char* table :
       {"step", "kept_step", "segment", "section", "phase_mechanism", "detail", "span", "span_total", "fetch",
        "fetch_ready", "wall_histogram", "cause_share", "device_step", "call"}) {
    const std::string all = std::string("SELECT * FROM ") + table + " ORDER BY 1, 2, 3";
    EXPECT_EQ(Query(folder / "a.tpr", all), Query(folder / "b.tpr", all)) << table;
  }
}

TEST(RunWriterTest, StepRowsMergeIntoEqualWidths) {
  TestFolder folder;
  RunWriterOptions options;
  options.max_step_rows = 8;
  auto writer = Create(folder / "a.tpr", options);
  for (int i = 0; i < 100; ++i) {
    writer->OnStep(PlainStep(i, i * 100, i == 41 ? 90 : 10 + i % 2));
    ASSERT_TRUE(writer->Commit().ok());
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT first_step, steps, start_ns, wall_min_ns, wall_max_ns FROM step"),
              ElementsAre("0|16|0|10|11", "16|16|1600|10|11", "32|16|3200|10|90", "48|16|4800|10|11",
                          "64|16|6400|10|11", "80|16|8000|10|11", "96|4|9600|10|11"));
}

TEST(RunWriterTest, MillionStepsKeepTheirSums) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  std::mt19937 random(7);
  int64_t now = 0;
  int64_t sums[kPhaseCount][kMechanismCount] = {};
  constexpr int kSteps = 1'000'000;
  for (int i = 0; i < kSteps; ++i) {
    StepRecord step{};
    step.index = i;
    step.start_ns = now;
    for (int cell = 0; cell < 4; ++cell) {
      const auto ns = static_cast<int64_t>(random() % 1'000'000);
      const uint32_t phase = random() % kPhaseCount;
      const uint32_t mechanism = random() % kMechanismCount;
      step.ns[phase][mechanism] += ns;
      sums[phase][mechanism] += ns;
      now += ns;
    }
    step.end_ns = now;
    writer->OnStep(step);
    if (i % 70'000 == 0) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::string path = folder / "a.tpr";
  EXPECT_LE(Number(path, "SELECT COUNT(*) FROM step"), 16384);
  EXPECT_EQ(Number(path, "SELECT SUM(steps) FROM step"), kSteps);
  EXPECT_EQ(Number(path, "SELECT SUM(wall_ns) FROM step"), now);
  EXPECT_EQ(Number(path, "SELECT SUM(wall_ns) FROM wall_histogram"), now);
  EXPECT_LE(Number(path, "SELECT COUNT(*) FROM section"), 64);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM step WHERE wall_ns <> " + SumOfCauses()), 0);
  int64_t of_cause[kCauseCount] = {};
  for (int p = 0; p < kPhaseCount; ++p) {
    int64_t of_phase = 0;
    for (int m = 0; m < kMechanismCount; ++m) {
      of_phase += sums[p][m];
      of_cause[static_cast<int>(CauseOf(static_cast<Phase>(p), static_cast<Mechanism>(m), false))] += sums[p][m];
      EXPECT_EQ(Number(path, std::string("SELECT SUM(ns) FROM phase_mechanism WHERE phase = '") + kPhaseNames[p] +
                                 "' AND mechanism = '" + kMechanismNames[m] + "'"),
                sums[p][m]);
    }
    EXPECT_EQ(Number(path, std::string("SELECT SUM(phase_") + kPhaseNames[p] + "_ns) FROM step"), of_phase);
  }
  for (int c = 0; c < kCauseCount; ++c) {
    EXPECT_EQ(Number(path, std::string("SELECT SUM(") + kCauseNames[c] + "_ns) FROM step"), of_cause[c]);
  }
}

TEST(RunWriterTest, CommitsInPiecesLeaveTheSameFileAsOneCommit) {
  RunWriterOptions options;
  options.max_step_rows = 50;
  options.sections = 8;
  options.details_per_section = 40;
  options.max_spans = 16;
  options.worst_steps = 8;
  options.max_flagged = 12;
  TestFolder folder;
  auto often = Create(folder / "often.tpr", options);
  auto once = Create(folder / "once.tpr", options);
  RandomRun first(5);
  RandomRun second(5);
  for (int i = 0; i < 2000; ++i) {
    first.Feed(*often);
    second.Feed(*once);
    if (i % 7 == 0 || i % 13 == 0) {
      ASSERT_TRUE(often->Commit().ok());
    }
  }
  ASSERT_TRUE(often->Finish("normally").ok());
  ASSERT_TRUE(once->Finish("normally").ok());
  const std::vector<std::string> dump = Dump(folder / "often.tpr");
  EXPECT_GT(dump.size(), 200u);
  EXPECT_EQ(dump, Dump(folder / "once.tpr"));
}

TEST(RunWriterTest, DetailsBeyondTheLimitFoldAndKeepTheirSums) {
  TestFolder folder;
  RunWriterOptions options;
  options.details_per_section = 64;
  options.sections = 4;
  auto writer = Create(folder / "a.tpr", options);
  RandomRun run(3);
  int64_t ns[4] = {};
  int64_t count = 0;
  for (int i = 0; i < 500; ++i) {
    for (int k = 0; k < 40; ++k) {
      const Detail detail = run.OneDetail(500);
      ns[static_cast<int>(detail.kind)] += detail.ns;
      ++count;
      writer->OnDetail(detail);
    }
    writer->OnStep(run.Step());
    if (i % 50 == 0) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::string path = folder / "a.tpr";
  const char* names[] = {"gil_wait", "sample", "hold", "gc"};
  for (int kind = 0; kind < 4; ++kind) {
    EXPECT_EQ(Number(path, std::string("SELECT SUM(ns) FROM detail WHERE kind = '") + names[kind] + "'"), ns[kind]);
    EXPECT_GE(
        Number(path, std::string("SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM detail WHERE folded = 0 AND kind = '") +
                         names[kind] + "' AND section >= 0 GROUP BY section)"),
        1)
        << "each kind keeps its costliest";
  }
  EXPECT_EQ(Number(path, "SELECT SUM(count) FROM detail"), count);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM detail WHERE section < -1 OR section > 3"), 0);
  EXPECT_LE(Number(path, "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM detail WHERE folded = 0 GROUP BY section)"),
            64);
  EXPECT_GT(Number(path, "SELECT COUNT(*) FROM detail WHERE folded > 0"), 0);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM detail WHERE folded > 0 AND (thread <> 0 OR stack <> 0 OR code <> 0)"),
            0);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM detail WHERE kind <> 'sample' AND state <> ''"), 0);
}

TEST(RunWriterTest, DetailCountsTheStepsThatHaveIt) {
  TestFolder folder;
  RunWriterOptions options;
  options.sections = 2;
  auto writer = Create(folder / "a.tpr", options);
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 0) {
      for (int k = 0; k < 3; ++k) {
        writer->OnDetail({DetailKind::kGilWait, Phase::kForward, SampleState::kPython, 2, 5, 0, i, 10, 1});
      }
    }
    writer->OnStep(PlainStep(i, i * 100, 100));
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT SUM(ns), SUM(count), SUM(steps), MAX(folded) FROM detail"), "300|30|10|0");
}

TEST(RunWriterTest, TheWorstStepsAndSomeFlaggedKeepTheirSegments) {
  TestFolder folder;
  RunWriterOptions options;
  options.worst_steps = 4;
  options.max_flagged = 8;
  auto writer = Create(folder / "a.tpr", options);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t flags = i == 0 ? uint32_t{kWarmUp} : i % 3 == 0 ? uint32_t{kDataStarved} : 0;
    StepRecord step = PlainStep(i, i * 10'000, i == 0 ? 9000 : 10 + (i * 37) % 1000, flags);
    step.segments = {{step.start_ns, step.end_ns, Phase::kForward, Mechanism::kUnknown, 0, 0}};
    writer->OnStep(step);
    if (i % 10 == 0) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::string path = folder / "a.tpr";
  // The same question, asked of plain arithmetic.
  std::vector<std::pair<int, int>> walls;
  for (int i = 1; i < 1000; ++i) walls.emplace_back(10 + (i * 37) % 1000, i);
  std::sort(walls.rbegin(), walls.rend());
  std::vector<std::string> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(std::to_string(walls[static_cast<size_t>(i)].second));
  EXPECT_EQ(Query(path, "SELECT first_step FROM kept_step WHERE why = 'worst' ORDER BY wall_ns DESC"), expected);
  EXPECT_EQ(Scalar(path, "SELECT first_step FROM kept_step WHERE why = 'warm_up'"), "0");
  const int64_t flagged = Number(path, "SELECT COUNT(*) FROM kept_step WHERE flags & 1");
  EXPECT_GE(flagged, 4);
  EXPECT_LE(flagged, 8 + 4);
  EXPECT_GT(Number(path, "SELECT MAX(first_step) FROM kept_step WHERE why = 'flagged'"), 500) << "spread over the run";
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM kept_step"), Number(path, "SELECT COUNT(DISTINCT step) FROM segment"));
  EXPECT_EQ(Number(path,
                   "SELECT COUNT(*) FROM segment JOIN kept_step ON first_step = step WHERE end_ns - segment.start_ns "
                   "<> wall_ns"),
            0);
}

TEST(RunWriterTest, TheLongestSpansAreKeptAndAllAreCounted) {
  TestFolder folder;
  RunWriterOptions options;
  options.max_spans = 3;
  auto writer = Create(folder / "a.tpr", options);
  for (int i = 1; i <= 10; ++i) {
    writer->OnSpan({SpanKind::kCheckpoint, i / 2, 1000 * i, 1000 * i + (i * 7) % 11, 1, 0, 100, 1});
    ASSERT_TRUE(writer->Commit().ok());
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT end_ns - start_ns FROM span ORDER BY 1"), ElementsAre("8", "9", "10"));
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT kind, count, ns, steps, value FROM span_total"),
            "checkpoint|10|55|6|1000");
}

TEST(RunWriterTest, EachFetchIsCountedInOnePlace) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  FetchRecord fetch{};
  fetch.loader = 3;
  fetch.end_ns = 100;
  fetch.cpu_ns = 40;
  fetch.gil_wait_ns = 7;
  fetch.on_step_thread = true;
  for (const int ready : {-1, 0, 0, 2, 500}) {
    fetch.ready = ready;
    writer->OnFetch(fetch);
  }
  fetch.first = true;
  writer->OnFetch(fetch);
  fetch.on_step_thread = false;
  writer->OnFetch(fetch);
  fetch.validation = true;
  writer->OnFetch(fetch);
  fetch.exhausted = true;
  writer->OnFetch(fetch);
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT * FROM fetch"), "3|5|500|200|35|100|1|100|1|100|1|100|1|100");
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT ready, count, wall_ns FROM fetch_ready"),
              ElementsAre("-1|1|100", "0|2|200", "2|1|100", "64|1|100"));
}

TEST(RunWriterTest, FetchesByTheWorkerThatTheyWaitedFor) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  FetchRecord fetch{};
  fetch.loader = 1;
  fetch.end_ns = 100;
  fetch.on_step_thread = true;
  for (const Awaited& awaited : {Awaited{}, {0, 4, 70}, {0, 4, 500}, {0, 1, 30}, {-1, 3, 100}, {2, 4, 0}}) {
    fetch.awaited = awaited;
    writer->OnFetch(fetch);
  }
  fetch.validation = true;
  writer->OnFetch(fetch);
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT count FROM fetch"), "6");
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM fetch_awaited"),
              ElementsAre("1|-1|3|1|100", "1|0|1|1|30", "1|0|4|2|170"));
}

TEST(RunWriterTest, SumsSamplesOfWorkersByLoaderStackAndState) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddWorkerSample({{7}, 3, SampleState::kBlocked, 257});
  writer->AddWorkerSample({{7}, 3, SampleState::kPython, 0});
  ASSERT_TRUE(writer->Commit().ok());
  writer->AddWorkerSample({{7}, 3, SampleState::kBlocked, 257});
  writer->AddWorkerSample({{8}, 0, SampleState::kUnknown, 0});
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM worker_stack ORDER BY loader, state"),
              ElementsAre("7|3|blocked|257|2", "7|3|python|0|1", "8|0|unknown|0|1"));
}

TEST(RunWriterTest, SumsSamplesOfWorkersBeyondTheTableAsNoStack) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  for (StackId stack = 1; stack <= 20000; ++stack) {
    writer->AddWorkerSample({{7}, stack, SampleState::kNative, 0});
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT COUNT(*), SUM(samples), SUM(samples * (stack = 0)) FROM worker_stack"),
              ElementsAre("16385|20000|3616"));
}

TEST(RunWriterTest, KeepsWhatIsLastKnownOfAChildAndItsSamples) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->SetChild({1, 77, 1000, 2000, 500, "", "python train.py"});
  writer->AddWorkerSample({{0, 1}, 3, SampleState::kNative, 0});
  ASSERT_TRUE(writer->Commit().ok());
  writer->SetChild({1, 77, 1000, 3000, 700, "ForkPoolWorker-1", "python train.py"});
  writer->SetChild({2, 78, 2000, 3000, 900, "", "ffmpeg"});
  writer->AddWorkerSample({{0, 1}, 3, SampleState::kNative, 0});
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM child"),
              ElementsAre("1|77|1000|3000|700|ForkPoolWorker-1|python train.py", "2|78|2000|3000|900||ffmpeg"));
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM child_stack"), ElementsAre("1|3|native|0|2"));
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM worker_stack"), IsEmpty());
}

TEST(RunWriterTest, InWhatAWorkerWaits) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddWorkerReading({1, 77, 1000, 500, 'S', true});
  for (const bool shared : {true, true, false}) writer->AddWorkerLook({1, 77, 202, shared});
  writer->AddWorkerLook({1, 77, -1, false});
  writer->AddWorkerLook({1, 78, 202, true});  // never read
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM worker_wait"), ElementsAre("1|-1|0|1", "1|202|0|1", "1|202|1|2"));
}

TEST(RunWriterTest, AWorkersPidMayBeUsedAgain) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddWorkerReading({1, 77, 1000, 500, 'R', false});  // still starting
  writer->AddWorkerReading({1, 77, 1500, 700, 'R', true});
  writer->AddWorkerReading({1, 77, 2000, 900, 'S', true});
  writer->AddWorkerReading({1, 77, 3000, 0, '?', true});
  writer->AddWorkerReading({1, 77, 4000, 10, 'R', false});
  writer->AddWorkerReading({1, 77, 5000, 60, 'R', false});
  writer->AddWorkerReading({2, 78, 5000, 0, '?', false});  // gone before it was ever seen
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM worker"),
              ElementsAre("1|1|77|1000|2000|500|900|4|1500|700", "2|1|77|4000|5000|10|60|2|0|0"));
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM worker_state"), ElementsAre("1|?|1", "1|R|1", "1|S|1"));
}

TEST(RunWriterTest, HostReadingsThinOut) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  for (int i = 0; i < 20'000; ++i) {
    writer->AddHostReading({i, 0, 0, 0, -1, 0, 0, 0});
    if (i % 1000 == 0) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT COUNT(*), MIN(at_ns), MAX(at_ns) FROM host"), "2500|0|19992");
}

TEST(RunWriterTest, AHostReadingKeepsThePageFaultsOrThatTheyAreNotKnown) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddHostReading({1, 0, 0, 0, -1, 0, 0, 0});
  writer->AddHostReading({2, 0, 0, 0, -1, 0, 0, 0, 11, 12, 13});
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::string select = "SELECT faults, system_ns, returned_bytes FROM host WHERE at_ns = ";
  EXPECT_EQ(Scalar(folder / "a.tpr", select + "1"), "-1|-1|-1");
  EXPECT_EQ(Scalar(folder / "a.tpr", select + "2"), "11|12|13");
}

TEST(RunWriterTest, CountersOfTheMachineAreWrittenWhereTheyChange) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddHostReading({1, 0, 0, 0, -1, 0, 0, 0}, {{"net", 5}, {"disk", 7}});
  ASSERT_TRUE(writer->Commit().ok());
  writer->AddHostReading({2, 0, 0, 0, -1, 0, 0, 0}, {{"disk", 7}, {"net", 6}});
  writer->AddHostReading({3, 0, 0, 0, -1, 0, 0, 0}, {{"disk", 9}});
  writer->AddHostReading({4, 0, 0, 0, -1, 0, 0, 0}, {{"disk", 9}, {"net", 6}});
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::string select =
      "SELECT name, at_ns, so_far FROM machine JOIN counter ON counter.id = machine.counter ORDER BY name, at_ns";
  EXPECT_THAT(Query(folder / "a.tpr", select), ElementsAre("disk|1|7", "disk|3|9", "net|1|5", "net|2|6", "net|4|6"));
}

TEST(RunWriterTest, CountersOfTheMachineThinOut) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  for (int i = 0; i < 20'000; ++i) {
    writer->AddHostReading({i, 0, 0, 0, -1, 0, 0, 0}, {{"disk", i / 16}});
    if (i % 1000 == 0) {
      ASSERT_TRUE(writer->Commit().ok());
    }
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT COUNT(*), MAX(at_ns), MAX(so_far) FROM machine"), "1250|19984|1249");
}

TEST(RunWriterTest, NotesThreadsAndNamesThatAreNoText) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  writer->AddNote("once");
  writer->AddNote("twice");
  writer->AddNote("twice");
  writer->SetThread(1, 1001, "Main", "step");
  writer->SetThreadGilWait(1, 5, 2);
  writer->SetThread(1, 1001, "MainThread", "");
  writer->SetThread(1, 1001, "", "");  // it has ended
  writer->SetThread(1, 1002, "", "train");
  writer->SetObject(9, "loader", "{\"file\": \"\xff\xc3\xa9\"}");
  ASSERT_TRUE(writer->Finish("exception").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT * FROM note"), ElementsAre("1|once|1", "2|twice|2"));
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT * FROM thread"), "1|1002|MainThread|train|5|2");
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT description FROM object"), "{\"file\": \"\xEF\xBF\xBD\xc3\xa9\"}");
}

TEST(RunWriterTest, WritesStacksAsTheyCome) {
  TestFolder folder;
  StackTable& table = StackTable::Get();
  table.Init();
  table.Reset();
  auto writer = Create(folder / "a.tpr");
  writer->SetStacks(&table);
  const SiteId run = table.InternSite("threading.py", "run", 10);
  ASSERT_NE(table.Intern(&run, 1), 0u);
  ASSERT_TRUE(writer->Commit().ok());
  const SiteId sites[] = {table.InternSite("train.py", "crunch", 41), run};
  const StackId stack = table.Intern(sites, 2);
  ASSERT_NE(stack, 0u);
  writer->OnDetail({DetailKind::kGilWait, Phase::kForward, SampleState::kPython, 2, stack, 0, 0, 10, 1});
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_THAT(
      Query(folder / "a.tpr", "SELECT depth, file, function, line FROM frames WHERE stack = " + std::to_string(stack)),
      ElementsAre("0|train.py|crunch|41", "1|threading.py|run|10"));
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT function, file, line FROM gil_holders"), "crunch|train.py|41");
  table.Reset();
}

TEST(RunWriterTest, AStepThatDoesNotAddUpIsPutRightAndCounted) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  StepRecord step = PlainStep(0, 0, 100);
  step.end_ns = 130;
  writer->OnStep(step);
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT wall_ns, compute_ns, unknown_ns, phase_other_ns FROM step"),
            "130|100|30|30");
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT * FROM dropped"), "unbalanced_steps|1");
}

TEST(RunWriterTest, EveryViewCanBeRead) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  RandomRun run(2);
  for (int i = 0; i < 200; ++i) run.Feed(*writer);
  ASSERT_TRUE(writer->Finish("normally").ok());
  const std::vector<std::string> views = Query(folder / "a.tpr", "SELECT name FROM sqlite_master WHERE type = 'view'");
  EXPECT_GE(views.size(), 10u);
  for (const std::string& view : views) {
    EXPECT_THAT(Scalar(folder / "a.tpr", "SELECT * FROM " + view), ::testing::Not(HasSubstr("error"))) << view;
  }
}

}  // namespace
}  // namespace trainperf
