// What each stage of reading a trace costs, of a made one or of the one that $TRACE names (plain JSON).
//
//   TRACE=t.json trainperf_trace_benchmark

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/timeline/timeline.h"
#include "trainperf/trace/analyze.h"
#include "trainperf/trace/converter.h"
#include "trainperf/trace/event_feed.h"
#include "trainperf/trace/step_marks.h"
#include "trainperf/trace/trace_reader.h"

namespace trainperf {
namespace {

// Twenty steps of operators, each with a launch, its arrow and its kernel; spaced as Kineto spaces them.
std::string MadeText() {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [";
  int64_t at = 1'700'000'000'000'000;
  int correlation = 0;
  for (int step = 0; step < 20; ++step) {
    const int64_t begin = at;
    for (int i = 0; i < 2000; ++i, at += 25) {
      const auto event = [&](const char* phase, const char* cat, absl::string_view name, int tid, int64_t ts, int dur,
                             absl::string_view args) {
        absl::StrAppend(&text, "\n  {\n    \"ph\": \"", phase, "\", \"cat\": \"", cat, "\", \"name\": \"", name,
                        "\", \"pid\": 7, \"tid\": ", tid, ",\n    \"ts\": ", ts, ".123, \"dur\": ", dur,
                        ".456,\n    \"args\": {\n      ", args, "\n    }\n  },");
      };
      const std::string id = absl::StrCat(++correlation);
      event("X", "cpu_op", absl::StrCat("aten::op", i % 90), 7, at, 20,
            absl::StrCat(R"("External id": )", id, R"(, "Input Dims": [[64, 256], [256, 256], []])"));
      event("X", "cuda_runtime", "cudaLaunchKernel", 7, at + 8, 6,
            absl::StrCat(R"("External id": )", id, R"(, "cbid": 211, "correlation": )", id));
      event("s", "ac2g", "ac2g", 7, at + 8, 0, R"("id": 1)");
      event("X", "kernel", absl::StrCat("void at::native::vectorized_elementwise_kernel<4, F", i % 170, ">"), 7,
            at + 15, 12,
            absl::StrCat(R"("device": 0, "context": 1, "stream": 7, "correlation": )", id, R"(, "grid": [64, 1, 1])"));
    }
    absl::StrAppend(&text, R"(
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#)",
                    step, R"(", "pid": 7, "tid": 7, "ts": )", begin, R"(, "dur": )", at - begin, "},");
  }
  text.pop_back();
  return text + "\n]}\n";
}

// The trace's file, there as long as the program.
const std::string& TracePath() {
  static const std::string* const path = [] {
    if (const char* named = getenv("TRACE")) return new std::string(named);
    static std::string made = absl::StrCat("/tmp/trainperf-benchmark-", getpid(), ".json");
    std::ofstream(made, std::ios::binary) << MadeText();
    atexit([] { unlink(made.c_str()); });
    return &made;
  }();
  return *path;
}

int64_t TraceBytes() { return static_cast<int64_t>(std::ifstream(TracePath(), std::ios::ate).tellg()); }

void BM_Read(benchmark::State& state) {
  TraceReadOptions options;
  options.threads = static_cast<int>(state.range(0));
  options.chunk_bytes = static_cast<size_t>(state.range(1)) << 10;
  for (auto _ : state) benchmark::DoNotOptimize(ReadTrace(TracePath(), options).value()->events);
  state.SetBytesProcessed(state.iterations() * TraceBytes());
}
BENCHMARK(BM_Read)
    ->ArgNames({"threads", "chunk_kb"})
    ->ArgsProduct({{1, 2}, {128, 256, 512, 1024}})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

class NoFeed : public EventFeed {
 public:
  void OnEvent(const Event& event) override { benchmark::DoNotOptimize(&event); }
  void OnOp(const DeviceOp& op) override { benchmark::DoNotOptimize(&op); }
  void AdvanceTo(int64_t /*watermark_ns*/) override {}
};

void BM_Convert(benchmark::State& state) {
  const std::unique_ptr<Trace> trace = ReadTrace(TracePath(), {}).value();
  const StepPlan plan = PlanSteps(*trace);
  for (auto _ : state) {
    StackTable stacks;
    stacks.Init();
    NoFeed feed;
    ConvertStats stats;
    if (!Convert(trace.get(), plan, &stacks, &feed, nullptr, &stats).ok()) state.SkipWithError("not converted");
  }
  state.SetItemsProcessed(state.iterations() * (trace->host.count() + trace->device.count()));
}
BENCHMARK(BM_Convert)->Unit(benchmark::kMillisecond);

void BM_Analyze(benchmark::State& state) {
  for (auto _ : state) {
    const auto summary = AnalyzeTrace(TracePath(), {});
    if (!summary.ok()) state.SkipWithError("not analyzed");
    unlink(summary->path.c_str());
  }
  state.SetBytesProcessed(state.iterations() * TraceBytes());
}
BENCHMARK(BM_Analyze)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trainperf
