// Events per second through the timeline, on a realistic mix. Target: 5 M/s on one core.

#include <algorithm>
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
  void OnTakenBack() override {}
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
    if (throttled && ++steps % 140 == 0) {  // a reading every 200 ms
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

// The same step with 100 kernels on two streams that it launches, 4 copies and a wait for the device: 330 events and
// operations.
void BM_WithDevice(benchmark::State& state) {
  struct Item {
    int64_t end_ns;
    bool is_op;
    Event event;
    DeviceOp op;
  };
  std::vector<Item> items;
  for (const Event& e : MakeStep()) items.push_back({e.end_ns, false, e, {}});
  const int64_t step_ns = MakeStep().back().value;
  const auto call = [&](HostCall what, int64_t start_ns, int64_t ns, int64_t correlation) {
    Event e{};
    e.kind = EventKind::kCall;
    e.what = static_cast<uint8_t>(what);
    e.start_ns = start_ns;
    e.end_ns = start_ns + ns;
    e.value = correlation;
    e.thread = 1;
    items.push_back({e.end_ns, false, e, {}});
  };
  for (int i = 0; i < 104; ++i) {
    call(i % 26 == 0 ? HostCall::kMemcpy : HostCall::kLaunchKernel, 150'000 + i * 10'000, 4'000, i + 1);
    DeviceOp op{};
    op.start_ns = 160'000 + i * 10'000;
    op.end_ns = op.start_ns + 7'000;
    op.correlation = static_cast<uint64_t>(i) + 1;
    op.name = static_cast<uint32_t>(i % 40) + 1;
    op.stream = static_cast<uint32_t>(i % 2);
    op.kind = i % 26 == 0 ? DeviceOpKind::kMemcpy : DeviceOpKind::kKernel;
    items.push_back({op.end_ns, true, {}, op});
  }
  call(HostCall::kStreamSync, 1'200'000, 30'000, 0);
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.end_ns < b.end_ns; });
  CountingSink sink;
  Timeline timeline({}, &sink);
  int64_t offset = 1'000'000'000;
  int64_t correlation = 0;
  for (auto _ : state) {
    for (const Item& item : items) {
      if (item.is_op) {
        DeviceOp op = item.op;
        op.start_ns += offset;
        op.end_ns += offset;
        op.correlation += static_cast<uint64_t>(correlation);
        timeline.Add(op);
        continue;
      }
      Event e = item.event;
      e.start_ns += offset;
      e.end_ns += offset;
      e.cpu_ns += offset;
      e.run_delay_ns += offset;
      if (e.value > 0 && e.kind == EventKind::kCall) e.value += correlation;
      timeline.Add(e);
    }
    offset += step_ns;
    correlation += 200;
  }
  benchmark::DoNotOptimize(sink.ns);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(items.size()));
  state.counters["target_per_second"] = kTargetPerSecond;
  if (timeline.steps_closed() + 2500 < state.iterations()) state.SkipWithError("steps were not closed");
}
BENCHMARK(BM_WithDevice);

}  // namespace
}  // namespace trainperf
