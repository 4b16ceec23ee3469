#include "trainperf/collect/collector.h"

#include <memory>
#include <new>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/marks.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

using ::testing::HasSubstr;

// Without the probes that look into Python.
std::unique_ptr<Collector> Start(const std::string& path) {
  CollectorOptions options;
  options.gil = GilTier::kOff;
  options.sampler_hz = 0;
  options.cuda = false;
  auto collector = Collector::Start(path, options);
  EXPECT_TRUE(collector.ok()) << collector.status();
  return collector.ok() ? *std::move(collector) : nullptr;
}

void Train(int steps) {
  for (int i = 0; i < steps; ++i) {
    marks::Begin(Bracket::kFetch, 1, -1, 0);
    marks::End(Bracket::kFetch, kFetchedBatch);
    marks::Begin(Bracket::kBackward, 0, 0, 0);
    marks::End(Bracket::kBackward, 0);
    marks::Begin(Bracket::kOptimizer, 1, 0, 0);
    marks::End(Bracket::kOptimizer, 0);
  }
}

struct Failure {
  std::string name;
  void (*fail)(RunWriter&);
  std::string why;
};

class CollectorFails : public testing::TestWithParam<Failure> {};

TEST_P(CollectorFails, TheTrainingGoesOnAndTheRunSaysSo) {
  TestFolder folder;
  auto collector = Start(folder / "a.tpr");
  ASSERT_NE(collector, nullptr);
  Train(200);
  ASSERT_TRUE(collector->Flush().ok());
  collector->Post([](RunWriter& writer) { writer.SetMeta("before", "1"); });
  collector->Post(GetParam().fail);
  const absl::Status flushed = collector->Flush();  // waits for what cannot be done any more
  EXPECT_EQ(flushed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(flushed.message()), HasSubstr(GetParam().why));
  EXPECT_FALSE(marks::enabled());
  EXPECT_FALSE(collector->Flush().ok());  // nor does it wait again
  collector->PauseCuda();
  EXPECT_FALSE(collector->TraceCuda({}));
  Train(20);
  collector->Post([](RunWriter& writer) { writer.SetMeta("after", "1"); });
  collector->Ends();
  collector->RemoveProbes();
  EXPECT_TRUE(collector->Finish("normally").ok());
  EXPECT_TRUE(collector->Finish("normally").ok());

  const std::string path = folder / "a.tpr";
  const auto meta = [&](const std::string& key) {
    return Scalar(path, "SELECT value FROM meta WHERE key = '" + key + "'");
  };
  EXPECT_EQ(Scalar(path, "SELECT text FROM note"),
            "trainperf's own thread failed (" + GetParam().why +
                "): what came after, and the last steps before it, are not in the run");
  EXPECT_EQ(meta("ended"), "normally");
  EXPECT_EQ(meta("before"), "1");
  EXPECT_EQ(meta("after"), "1");
  EXPECT_GT(std::stoll(meta("wall_ns")), 0);
  const int64_t steps = Number(path, "SELECT SUM(steps) FROM step");
  EXPECT_GE(steps, 150);  // the timeline has held some of them back
  EXPECT_LT(steps, 200);  // the last at least
  EXPECT_EQ(Number(path, "SELECT SUM(steps) FROM section"), steps);
}

// Else gtest prints its bytes.
void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

INSTANTIATE_TEST_SUITE_P(
    By, CollectorFails,
    testing::Values(Failure{"NoMemory", [](RunWriter&) { throw std::bad_alloc(); }, "out of memory"},
                    Failure{"Another", [](RunWriter&) { throw std::out_of_range("a place"); }, "a place"}),
    [](const auto& failure) { return failure.param.name; });

// Its native id. Seen by marks, and gone when this returns.
int32_t ThreadThatEnds() {
  int32_t tid = 0;
  std::thread([&tid] {
    tid = marks::CurrentThread() != nullptr ? marks::CurrentThread()->native_tid.load() : 0;
  }).join();
  while (tid != 0 && !ThreadHasEnded(tid)) std::this_thread::yield();
  return tid;
}

TEST(Collector, TellsOfThreadsThatHaveEndedAndOfTooMany) {
  TestFolder folder;
  auto collector = Start(folder / "a.tpr");
  Train(2);
  std::set<int32_t> tids;
  const int64_t start_ns = NowNs();
  while (ThreadTable::Get().refused() == 0) tids.insert(ThreadThatEnds());
  const int64_t seconds = 1 + (NowNs() - start_ns) / 1'000'000'000;
  ASSERT_TRUE(collector->Finish("normally").ok());
  const std::string path = folder / "a.tpr";
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM thread"), 1024);
  // This one; and of the others those that it met alive, once a second.
  EXPECT_GE(Number(path, "SELECT COUNT(*) FROM thread WHERE name != ''"), 1);
  EXPECT_LE(Number(path, "SELECT COUNT(*) FROM thread WHERE name != ''"), 1 + seconds);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM thread WHERE native_tid = " + std::to_string(*tids.rbegin())), 1);
  EXPECT_EQ(Scalar(path, "SELECT text || ' ' || count FROM note"),
            "more than 1,024 threads were seen: later ones are not told apart by name 1");
}

TEST(Collector, AnotherWatchFollowsOneThatFailed) {
  TestFolder folder;
  {
    auto collector = Start(folder / "a.tpr");
    collector->Post([](RunWriter&) { throw std::bad_alloc(); });
    EXPECT_FALSE(collector->Flush().ok());
  }  // which finishes it
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT value FROM meta WHERE key = 'ended'"), "exception");
  auto collector = Start(folder / "b.tpr");
  Train(20);
  EXPECT_TRUE(collector->Finish("normally").ok());
  EXPECT_GE(Number(folder / "b.tpr", "SELECT SUM(steps) FROM step"), 19);
  EXPECT_EQ(Scalar(folder / "b.tpr", "SELECT COUNT(*) FROM note"), "0");
}

}  // namespace
}  // namespace trainperf
