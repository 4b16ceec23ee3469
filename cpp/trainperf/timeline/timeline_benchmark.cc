// Events per second through the timeline, on a realistic mix. Target: 5 M/s on one core.

#include <vector>

#include "benchmark/benchmark.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {
namespace {

constexpr double kTargetPerSecond = 5e6;

class CountingSink : public TimelineSink {
 public:
  void OnStep(const StepRecord& step) override { ns += step.end_ns - step.start_ns; }
  void OnDetail(const Detail& detail) override { ns += detail.ns; }
  void OnSpan(const Span& span) override { ns += span.end_ns - span.start_ns; }
  void OnFetch(const FetchRecord& fetch) override { ns += fetch.end_ns - fetch.start_ns; }
  int64_t ns = 0;
};

// A step of 1.4 ms: fetch, backward, optimizer, two log records, a collection, a user phase (14 marks), 2 GIL waits and
// 1 sample.
std::vector<Event> MakeStep() {
  std::vector<Event> events;
  int64_t now = 0;
  const auto mark = [&](EventKind kind, Bracket what, int64_t value, int64_t after_ns) {
    Event e{};
    e.kind = kind;
    e.what = static_cast<uint8_t>(what);
    e.start_ns = e.end_ns = now;
    e.cpu_ns = now * 9 / 10;
    e.flags = kHasRunDelay;
    e.run_delay_ns = now / 100;
    e.object = 1 + static_cast<uint32_t>(what);
    e.value = value;
    e.thread = 1;
    events.push_back(e);
    now += after_ns;
  };
  const auto other = [&](EventKind kind, int64_t ns) {
    Event e{};
    e.kind = kind;
    e.start_ns = now;
    e.end_ns = now += ns;
    e.object = 2;
    e.stack = 7;
    e.thread = 1;
    events.push_back(e);
  };
  const auto bracket = [&](Bracket what, int64_t ns, int64_t after_ns) {
    mark(EventKind::kBegin, what, -1, ns);
    mark(EventKind::kEnd, what, 0, after_ns);
  };
  bracket(Bracket::kFetch, 100'000, 20'000);
  bracket(Bracket::kUserPhase, 20'000, 300'000);
  other(EventKind::kGilWait, 50'000);
  bracket(Bracket::kGc, 10'000, 50'000);
  other(EventKind::kSample, 1);
  bracket(Bracket::kBackward, 400'000, 10'000);
  bracket(Bracket::kOptimizer, 200'000, 20'000);
  other(EventKind::kGilWait, 50'000);
  bracket(Bracket::kLogging, 30'000, 10'000);
  bracket(Bracket::kLogging, 30'000, 100'000);
  events.back().value = now;  // the step's length, for whoever repeats it
  return events;
}

void BM_Events(benchmark::State& state) {
  const std::vector<Event> step = MakeStep();
  const int64_t step_ns = step.back().value;
  CountingSink sink;
  Timeline timeline({}, &sink);
  int64_t offset = 1'000'000'000;
  const bool throttled = state.range(0) != 0;
  int64_t steps = 0;
  for (auto _ : state) {
    for (Event e : step) {
      e.start_ns += offset;
      e.end_ns += offset;
      e.cpu_ns += offset;
      e.run_delay_ns += offset;
      timeline.Add(e);
    }
    offset += step_ns;
    if (throttled && ++steps % 70 == 0) {  // a reading every 100 ms
      Event e{};
      e.kind = EventKind::kHost;
      e.start_ns = e.end_ns = offset;
      timeline.Add(e);
      timeline.AdvanceTo(offset);
    }
  }
  benchmark::DoNotOptimize(sink.ns);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(step.size()));
  state.counters["target_per_second"] = kTargetPerSecond;
  if (timeline.steps_closed() + 1200 < state.iterations()) state.SkipWithError("steps were not closed");
}
BENCHMARK(BM_Events)->Arg(0)->Arg(1)->ArgName("throttle_readings");

}  // namespace
}  // namespace trainperf
