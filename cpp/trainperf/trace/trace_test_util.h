// For tests: traces written down in a few lines, and a feed that remembers and checks what it is told.

#ifndef TRAINPERF_TRACE_TRACE_TEST_UTIL_H_
#define TRAINPERF_TRACE_TRACE_TEST_UTIL_H_

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainperf/event/names.h"
#include "trainperf/trace/converter.h"
#include "trainperf/trace/event_feed.h"
#include "trainperf/trace/trace_reader.h"

namespace trainperf {

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char path[] = "/tmp/trainperf-trace-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
    close(fd);
    path_ = path;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Times in microseconds.
class TraceText {
 public:
  TraceText& Span(const std::string& category, const std::string& name, double ts, double dur, int tid = 1,
                  const std::string& args = "") {
    Add(absl::StrCat(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "pid": 7, "tid": )", tid,
                     R"(, "ts": )", ts, R"(, "dur": )", dur, args.empty() ? "" : ", \"args\": {" + args + "}", "}"));
    return *this;
  }
  TraceText& Op(const std::string& name, double ts, double dur, int tid = 1) {
    return Span("cpu_op", name, ts, dur, tid);
  }
  TraceText& Call(const std::string& name, double ts, double dur, int correlation, int tid = 1) {
    return Span("cuda_runtime", name, ts, dur, tid, absl::StrCat(R"("cbid": 211, "correlation": )", correlation));
  }
  TraceText& Kernel(const std::string& name, double ts, double dur, int correlation, int device = 0) {
    return Span("kernel", name, ts, dur, 7,
                absl::StrCat(R"("device": )", device, R"(, "stream": 7, "correlation": )", correlation));
  }
  TraceText& Step(int number, double ts, double dur, int tid = 1) {
    return Span("user_annotation", absl::StrCat("ProfilerStep#", number), ts, dur, tid);
  }
  TraceText& Add(const std::string& event) {
    events_ += (events_.empty() ? "\n  " : ",\n  ") + event;
    return *this;
  }
  std::string text() const {
    return R"({"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8},
 "deviceProperties": [{"id": 0, "name": "NVIDIA Test"}], "traceEvents": [)" +
           events_ + "\n], \"traceName\": \"x\"}\n";
  }

 private:
  std::string events_;
};

inline std::unique_ptr<Trace> MustRead(const std::string& text, const TraceReadOptions& options = {}) {
  const TempFile file(text);
  auto trace = ReadTrace(file.path(), options);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *std::move(trace) : nullptr;
}

inline std::vector<HostRecord> HostRecords(Trace* trace) {
  std::vector<HostRecord> all;
  auto merge = trace->host.Merge();
  while (const HostRecord* record = merge.Next()) all.push_back(*record);
  return all;
}
inline std::vector<DeviceOp> DeviceOps(Trace* trace) {
  std::vector<DeviceOp> all;
  auto merge = trace->device.Merge();
  while (const DeviceOp* op = merge.Next()) all.push_back(*op);
  return all;
}

// Checks what must hold of every trace: order, and that the calls of one thread do not overlap.
class RecordingFeed : public EventFeed {
 public:
  void OnEvent(const Event& event) override {
    EXPECT_GE(event.end_ns, last_ns_);
    EXPECT_LE(event.start_ns, event.end_ns);
    EXPECT_GE(event.end_ns, watermark_ns_);
    last_ns_ = event.end_ns;
    if (event.kind == EventKind::kCall) {
      EXPECT_GE(event.start_ns, free_from_[event.thread]);
      free_from_[event.thread] = event.end_ns;
    }
    events.push_back(event);
  }
  void OnOp(const DeviceOp& op) override {
    EXPECT_GE(op.end_ns, last_ns_);
    EXPECT_GE(op.end_ns, watermark_ns_);
    last_ns_ = op.end_ns;
    ops.push_back(op);
  }
  void AdvanceTo(int64_t watermark_ns) override {
    EXPECT_GE(watermark_ns, watermark_ns_);
    watermark_ns_ = watermark_ns;
  }

  // Microseconds since the trace's first event.
  static double us(int64_t ns) { return static_cast<double>(ns - Trace::kSecondBeforeNs) / 1000; }
  // "begin backward@3", "launch_kernel 1-4 #5", "step@0"
  std::vector<std::string> Told(ThreadId thread) const;

  std::vector<Event> events;
  std::vector<DeviceOp> ops;

 private:
  int64_t last_ns_ = 0;
  int64_t watermark_ns_ = 0;
  std::map<ThreadId, int64_t> free_from_;
};

inline std::vector<std::string> RecordingFeed::Told(ThreadId thread) const {
  static const char* const kBrackets[] = {"fetch", "start", "backward", "optimizer", "checkpoint"};
  std::vector<std::string> all;
  for (const Event& e : events) {
    if (e.thread != thread) continue;
    EXPECT_TRUE(e.flags & kNoCpuTime);
    const double end = us(e.end_ns);
    switch (e.kind) {
      case EventKind::kStep:
        all.push_back(absl::StrCat("step@", end));
        break;
      case EventKind::kBegin:
        all.push_back(absl::StrCat("begin ", kBrackets[e.what], "@", end));
        break;
      case EventKind::kEnd:
        all.push_back(absl::StrCat("end ", kBrackets[e.what], "@", end));
        break;
      case EventKind::kCall:
        all.push_back(absl::StrCat(kHostCallNames[e.what], " ", us(e.start_ns), "-", end,
                                   e.value != 0 ? absl::StrCat(" #", e.value) : ""));
        break;
      case EventKind::kSample:
        all.push_back(absl::StrCat("stack ", us(e.start_ns), "-", end));
        break;
      default:
        ADD_FAILURE() << static_cast<int>(e.kind);
    }
  }
  return all;
}

inline RecordingFeed ConvertText(const std::string& text, StackTable* stacks = nullptr, StepPlan* plan = nullptr) {
  RecordingFeed feed;
  auto trace = MustRead(text);
  if (trace == nullptr) return feed;
  const StepPlan made = PlanSteps(*trace);
  if (plan != nullptr) *plan = made;
  ConvertStats stats;
  EXPECT_TRUE(Convert(trace.get(), made, stacks, &feed, nullptr, &stats).ok());
  return feed;
}

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TRACE_TEST_UTIL_H_
