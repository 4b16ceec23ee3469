#include "trainperf/trace/analyze.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/base/status_macros.h"
#include "trainperf/run/run_writer.h"
#include "trainperf/timeline/timeline.h"
#include "trainperf/trace/converter.h"
#include "trainperf/trace/event_feed.h"
#include "trainperf/trace/step_marks.h"
#include "trainperf/trace/trace_reader.h"

namespace trainperf {
namespace {

constexpr double kReadShare = 0.7;                         // of the work, for the progress
constexpr int64_t kEpochNs = 1'000'000'000'000'000'000LL;  // 2001: smaller stamps count from a boot

class TimelineFeed : public EventFeed {
 public:
  explicit TimelineFeed(Timeline* timeline) : timeline_(timeline) {}
  void OnEvent(const Event& event) override { timeline_->Add(event); }
  void OnOp(const DeviceOp& op) override { timeline_->Add(op); }
  void AdvanceTo(int64_t watermark_ns) override { timeline_->AdvanceTo(watermark_ns); }

 private:
  Timeline* const timeline_;
};

// As meta.py writes it.
std::string IsoTime(int64_t ns) {
  const time_t seconds = static_cast<time_t>(ns / 1'000'000'000);
  struct tm parts;
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  char text[64];
  snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03d+00:00", parts.tm_year + 1900, parts.tm_mon + 1,
           parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(ns / 1'000'000 % 1000));
  return text;
}

void DescribeTrace(const Trace& trace, RunWriter* writer) {
  const int64_t first_ns =
      trace.base_time_ns > kEpochNs && trace.first_ns < kEpochNs ? trace.base_time_ns + trace.first_ns : trace.first_ns;
  writer->SetMeta("source", "trace");
  if (first_ns > kEpochNs) writer->SetMeta("started", IsoTime(first_ns));
  writer->SetMeta("wall_ns", absl::StrCat(trace.last_ns - trace.first_ns));
  writer->SetMeta("trace_zero_ns", absl::StrCat(trace.zero_ns()));  // the trace's own stamps: add it
  if (trace.rank >= 0) writer->SetMeta("rank", absl::StrCat(trace.rank));
  if (trace.world_size > 0) writer->SetMeta("world_size", absl::StrCat(trace.world_size));
  const bool devices = trace.device.count() > 0;
  writer->SetMeta("feeds_device", devices ? "1" : "0");
  writer->SetTier("cuda", devices ? "trace" : "off", devices ? "" : "the trace holds no device");
  writer->SetTier("gil_waits", "off", "a trace holds no GIL waits");
  writer->SetTier("gil_holds", "off", "a trace holds no GIL holds");
  writer->SetTier("run_delay", "off", "a trace does not tell how long threads waited for a CPU");
  writer->SetTier("throttling", "off", "a trace does not tell of the container's CPU quota");
  const bool python = trace.python_functions > 0;
  writer->SetTier("stacks", python ? "trace" : "off",
                  python ? "" : "the trace has no Python functions: record it with_stack=True");
  if (!devices) writer->AddNote("the trace saw no device: it tells of the host only");
  for (const std::string& note : trace.notes) writer->AddNote(note);
  for (const TraceDevice& device : trace.devices) writer->SetDevice(device.id, device.name, device.description);
  for (const uint32_t id : trace.tables.devices()) {
    const auto described = [&](const TraceDevice& device) { return device.id == id; };
    if (std::none_of(trace.devices.begin(), trace.devices.end(), described)) writer->SetDevice(id, "", "{}");
  }
  writer->SetNames(&trace.tables.kernels());
}

void DescribeThreads(const Trace& trace, const StepPlan& plan, RunWriter* writer) {
  const auto threads = trace.tables.threads();
  for (size_t i = 0; i < threads.size(); ++i) {
    const uint16_t id = static_cast<uint16_t>(i + 1);
    const ThreadCounts counts = id < trace.threads.size() ? trace.threads[id] : ThreadCounts();
    const bool autograd = id != plan.thread && counts.backward_ops > 0;
    const int64_t tid = threads[i].native_tid;
    const bool fits = tid > 0 && tid <= std::numeric_limits<int32_t>::max();
    writer->SetThread(id, fits ? static_cast<int32_t>(tid) : 0, threads[i].name, autograd ? "autograd" : "");
  }
}

}  // namespace

absl::StatusOr<TraceSummary> AnalyzeTrace(const std::string& trace_path, const AnalyzeOptions& options) {
  TraceReadOptions read;
  read.threads = options.threads;
  if (options.progress) {
    read.progress = [&options](double share) { return options.progress(share * kReadShare); };
  }
  TRAINPERF_ASSIGN_OR_RETURN(const std::unique_ptr<Trace> trace, ReadTrace(trace_path, read));
  const StepPlan plan = PlanSteps(*trace);

  StackTable stacks;  // outlives the writer
  stacks.Init();
  RunWriterOptions writer_options;
  writer_options.overwrite = options.overwrite;
  writer_options.disposable = true;  // the trace is still there
  writer_options.feeds_device = trace->device.count() > 0;
  TRAINPERF_ASSIGN_OR_RETURN(const std::unique_ptr<RunWriter> writer,
                             RunWriter::Create(options.output, writer_options));
  const auto go_on = [&]() -> absl::Status {
    TimelineOptions timeline_options;
    timeline_options.feeds_device = writer_options.feeds_device;
    timeline_options.first_step_index = plan.first_index;
    Timeline timeline(timeline_options, writer.get());
    timeline.SetNames(&trace->tables.kernels());
    for (const auto& [key, value] : options.meta) writer->SetMeta(key, value);
    DescribeTrace(*trace, writer.get());
    DescribeThreads(*trace, plan, writer.get());
    if (!plan.note.empty()) writer->AddNote(plan.note);
    writer->SetStacks(&stacks);
    TimelineFeed feed(&timeline);
    ConvertStats stats;
    const auto keep_on = [&] { return !options.progress || options.progress(kReadShare); };
    TRAINPERF_RETURN_IF_ERROR(Convert(trace.get(), plan, &stacks, &feed, keep_on, &stats));
    timeline.Finish(trace->last_ns - trace->zero_ns());
    for (const ConvertStats::Loader& loader : stats.loaders) {
      // Its iterator's class tells whether it has workers, but not how many.
      const bool alone = trace->tables.host_names().name(loader.name).find("_SingleProcess") != std::string::npos;
      writer->SetObject(loader.object, "loader",
                        alone ? R"({"num_workers": 0})" : R"({"num_workers": 1, "num_workers_known": false})");
    }
    if (stats.too_deep > 0) {
      writer->AddNote(absl::StrCat(stats.too_deep, " events of the trace were left out: they nest too deeply"));
    }
    if (timeline.refused_ops() > 0) writer->AddNote(Timeline::RefusedOpsNote());
    writer->SetDropped("device_ops", timeline.refused_ops());
    writer->SetDropped("late_events", timeline.late_events());
    writer->SetDropped("trace_events", trace->bad_times + trace->refused + trace->unreadable + stats.too_deep);
    writer->SetMeta("lead_ns", absl::StrCat(timeline.lead_ns()));
    writer->SetMeta("incomplete_steps", "0");  // a trace ends anywhere, also between a batch and its step
    writer->SetMeta("step_thread", absl::StrCat(timeline.step_thread()));
    TRAINPERF_RETURN_IF_ERROR(writer->Finish("normally"));
    return absl::OkStatus();
  };
  const absl::Status status = go_on();
  if (!status.ok()) {
    // A rescued run is told by the status; anything else is half of a file that nobody asked for.
    if (status.code() == absl::StatusCode::kCancelled) unlink(writer->path().c_str());
    return status;
  }
  TraceSummary summary;
  summary.path = writer->path();
  summary.events = trace->events;
  summary.rank = trace->rank;
  summary.devices = static_cast<int64_t>(trace->tables.devices().size());
  return summary;
}

}  // namespace trainperf
