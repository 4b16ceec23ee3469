// What writing a run costs: one commit of 70 steps, and a run of 10 million steps.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "benchmark/benchmark.h"
#include "trainperf/base/clock.h"
#include "trainperf/run/run_test_util.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {
namespace {

double ResidentMb() {
  long total = 0;
  long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &total, &resident) != 2) return 0;
  std::fclose(file);
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

// Cheap and repeatable, so that the benchmark is of the writer.
class Random {
 public:
  uint32_t operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }

 private:
  uint64_t state_ = 1;
};

// A step of a loop that waits for data and the GIL a little, with 16 segments; every 50th is flagged.
StepRecord MakeStep(int64_t index, int64_t start_ns, uint32_t noise) {
  StepRecord step{};
  step.index = index;
  step.start_ns = start_ns;
  int64_t at = start_ns;
  for (int i = 0; i < 16; ++i) {
    const auto phase = static_cast<Phase>(i % kPhaseCount);
    const auto mechanism = static_cast<Mechanism>((i * 5) % kMechanismCount);
    const int64_t ns = 50'000 + (noise >> i) % 80'000;
    step.ns[static_cast<int>(phase)][static_cast<int>(mechanism)] += ns;
    step.segments.push_back({at, at + ns, phase, mechanism, 2, 3});
    at += ns;
  }
  step.end_ns = at;
  step.flags = index == 0 ? uint32_t{kWarmUp} : noise % 50 == 0 ? uint32_t{kDataStarved} : 0;
  step.fetches = step.backwards = step.optimizer_steps = 1;
  return step;
}

// One step and what comes with it: a sample and a hold every third step, two GIL waits, a fetch, now and then a span.
int64_t Feed(RunWriter& writer, int64_t index, int64_t now_ns, Random& random) {
  const StepRecord step = MakeStep(index, now_ns, random());
  for (int i = 0; i < 2; ++i) {
    writer.OnDetail(
        {DetailKind::kGilWait, Phase::kForward, SampleState::kPython, 2, 1 + random() % 40, 0, index, 9000, 1});
  }
  if (index % 3 == 0) {
    const auto state = static_cast<SampleState>(random() % 4);
    writer.OnDetail(
        {DetailKind::kSample, static_cast<Phase>(random() % 5), state, 1, 1 + random() % 800, 7, index, 4000, 1});
    writer.OnDetail({DetailKind::kHold, Phase::kForward, SampleState::kPython, 1 + random() % 5, 1 + random() % 900, 0,
                     index, 4000, 1});
  }
  writer.OnFetch(
      {1, index, now_ns, now_ns + 60'000, 30'000, 0, static_cast<int32_t>(index % 4), false, false, false, true});
  if (index % 50 == 0) {
    writer.OnSpan({SpanKind::kLogging, index, now_ns, now_ns + 1'000'000 + random() % 1'000'000, 5, 0, 0, 1});
  }
  writer.OnStep(step);
  return step.end_ns;
}

// CPU of the collector's thread per commit; the steps themselves (OnStep and the rest) are in it.
void BM_Tick(benchmark::State& state) {
  TestFolder folder;
  auto writer = *RunWriter::Create(folder / "a.tpr", {});
  Random random;
  int64_t index = 0;
  int64_t now_ns = 0;
  const auto tick = [&] {
    for (int i = 0; i < 70; ++i, ++index) now_ns = Feed(*writer, index, now_ns, random);
    if (!writer->Commit().ok()) state.SkipWithError("commit failed");
  };
  while (index < state.range(0)) tick();
  const int64_t first_index = index;
  const int64_t cpu_before = ThreadCpuNs();
  for (auto _ : state) tick();
  const auto ticks = static_cast<double>(index - first_index) / 70;
  state.counters["cpu_ms_per_tick"] = static_cast<double>(ThreadCpuNs() - cpu_before) / 1e6 / ticks;
  state.SetLabel("70 steps and a commit, target cpu_ms_per_tick <= 1");
}
BENCHMARK(BM_Tick)->Arg(0)->Arg(200'000)->Iterations(500)->Unit(benchmark::kMillisecond);

void BM_TenMillionSteps(benchmark::State& state) {
  constexpr int64_t kSteps = 10'000'000;
  for (auto _ : state) {
    TestFolder folder;
    Random random;
    const double before = ResidentMb();
    double peak = before;
    int64_t longest_commit_ns = 0;
    int64_t now_ns = 0;
    {
      auto writer = *RunWriter::Create(folder / "a.tpr", {});
      for (int64_t index = 0; index < kSteps; ++index) {
        now_ns = Feed(*writer, index, now_ns, random);
        if (index % 7000 != 0) continue;
        const int64_t start = NowNs();
        if (!writer->Commit().ok()) state.SkipWithError("commit failed");
        longest_commit_ns = std::max(longest_commit_ns, NowNs() - start);
        peak = std::max(peak, ResidentMb());
      }
      if (!writer->Finish("normally").ok()) state.SkipWithError("finish failed");
      peak = std::max(peak, ResidentMb());
    }
    struct stat found;
    if (stat((folder / "a.tpr").c_str(), &found) != 0) state.SkipWithError("no file");
    state.counters["memory_mb"] = peak - before;
    state.counters["file_mb"] = static_cast<double>(found.st_size) / 1e6;
    state.counters["longest_commit_ms"] = static_cast<double>(longest_commit_ns) / 1e6;
    state.counters["steps/s"] = benchmark::Counter(static_cast<double>(kSteps), benchmark::Counter::kIsRate);
  }
  state.SetLabel("targets: memory_mb <= 64, file_mb <= 100");
}
BENCHMARK(BM_TenMillionSteps)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace trainperf
