// For tests: a training loop written down as what its threads do, on a fake clock, and a sink that remembers.
//
//   Script loop;
//   loop.Fetch(kTrain, 2_ms).Cpu(5_ms).Backward(4_ms).Optimizer(kAdam, 1_ms);
//   loop.Finish();
//   loop.steps()[0].phase_ms(Phase::kForward) ...

#ifndef TRAINPERF_TIMELINE_SCRIPT_H_
#define TRAINPERF_TIMELINE_SCRIPT_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {

constexpr uint32_t kTrain = 1, kVal = 2, kSecond = 3;  // loaders
constexpr uint32_t kAdam = 11, kDiscriminator = 12;    // optimizers

constexpr int64_t operator""_ms(unsigned long long ms) { return static_cast<int64_t>(ms) * 1'000'000; }
constexpr int64_t operator""_us(unsigned long long us) { return static_cast<int64_t>(us) * 1'000; }

struct Step : StepRecord {
  int64_t wall() const { return end_ns - start_ns; }
  int64_t phase(Phase p) const {
    int64_t sum = 0;
    for (const int64_t value : ns[static_cast<int>(p)]) sum += value;
    return sum;
  }
  int64_t mechanism(Mechanism m) const {
    int64_t sum = 0;
    for (const auto& row : ns) sum += row[static_cast<int>(m)];
    return sum;
  }
  int64_t at(Phase p, Mechanism m) const { return ns[static_cast<int>(p)][static_cast<int>(m)]; }
  bool has(StepFlag flag) const { return (flags & flag) != 0; }
  const DeviceStep& device(uint32_t id = 0) const {
    for (const DeviceStep& d : devices) {
      if (d.device == id) return d;
    }
    static const DeviceStep none{};
    ADD_FAILURE() << "step " << index << " has no device " << id;
    return none;
  }
  int64_t idle(Cause cause, uint32_t id = 0) const { return device(id).idle_ns[static_cast<int>(cause)]; }
  int64_t idle(uint32_t id = 0) const {
    int64_t sum = 0;
    for (const int64_t value : device(id).idle_ns) sum += value;
    return sum;
  }
};

inline void CheckDevice(const Step& step, const DeviceStep& device, size_t max_segments) {
  if (device.untraced) return;
  int64_t sum = device.busy_ns;
  EXPECT_GE(device.busy_ns, 0);
  for (const int64_t value : device.idle_ns) {
    EXPECT_GE(value, 0);
    sum += value;
  }
  EXPECT_EQ(sum, step.wall()) << "step " << step.index << " device " << device.device;
  for (const int64_t part : {device.kernel_ns, device.copy_ns, device.exposed_copy_ns, device.exposed_collective_ns}) {
    EXPECT_GE(part, 0);
    EXPECT_TRUE(device.incomplete || part <= device.busy_ns) << part;
  }
  int64_t kernels = 0;
  for (const KernelSum& kernel : device.kernel_sums) kernels += kernel.count;
  EXPECT_EQ(kernels, device.kernels);
  EXPECT_LE(device.segments.size(), max_segments);
  for (size_t i = 0; i < device.segments.size(); ++i) {
    EXPECT_LT(device.segments[i].start_ns, device.segments[i].end_ns);
    if (i > 0) {
      EXPECT_TRUE(device.incomplete || device.segments[i].start_ns == device.segments[i - 1].end_ns) << step.index;
    }
  }
  if (!device.incomplete && step.wall() > 0 && !device.segments.empty()) {
    EXPECT_EQ(device.segments.front().start_ns, step.start_ns) << "step " << step.index;
    EXPECT_EQ(device.segments.back().end_ns, step.end_ns) << "step " << step.index;
  }
}

// Checks, as they come, what must hold of every step.
class RecordingSink : public TimelineSink {
 public:
  void OnStep(const StepRecord& record) override {
    Step step{record};
    int64_t sum = 0;
    for (const auto& row : step.ns) {
      for (const int64_t value : row) {
        EXPECT_GE(value, 0);
        sum += value;
      }
    }
    EXPECT_EQ(sum, step.wall()) << "step " << step.index;
    EXPECT_GE(step.wall(), 0);
    EXPECT_LE(step.segments.size(), max_segments);
    int64_t at_ns = step.start_ns;
    for (const Segment& segment : step.segments) {
      EXPECT_EQ(segment.start_ns, at_ns) << "step " << step.index;
      EXPECT_GT(segment.end_ns, segment.start_ns);
      EXPECT_LT(static_cast<int>(segment.phase), kPhaseCount);
      at_ns = segment.end_ns;
    }
    EXPECT_EQ(at_ns, step.end_ns) << "step " << step.index;
    for (const DeviceStep& device : step.devices) CheckDevice(step, device, max_segments);
    EXPECT_EQ(step.index, count);
    if (touching && count > 0) {
      EXPECT_EQ(step.start_ns, last_end_ns) << "step " << step.index;
    }
    last_end_ns = step.end_ns;
    ++count;
    if (keep) steps.push_back(step);
  }
  void OnDetail(const Detail& detail) override {
    EXPECT_LT(detail.step, count);
    if (keep) details.push_back(detail);
  }
  void OnSpan(const Span& span) override {
    EXPECT_GE(span.end_ns, span.start_ns);
    if (keep) spans.push_back(span);
  }
  void OnTakenBack() override {
    count = last_end_ns = 0;
    ++taken_back;
    steps.clear();
    details.clear();
    spans.clear();
    fetches.clear();
  }
  void OnFetch(const FetchRecord& fetch) override {
    if (keep) fetches.push_back(fetch);
  }

  bool keep = true;
  bool touching = true;  // false: the step thread may change
  size_t max_segments = 256;
  int64_t count = 0;
  int taken_back = 0;
  int64_t last_end_ns = 0;
  std::vector<Step> steps;
  std::vector<Detail> details;
  std::vector<Span> spans;
  std::vector<FetchRecord> fetches;
};

class Script {
 public:
  explicit Script(const TimelineOptions& options = {}) : timeline_(options, &sink_) {}

  // What the thread does until its next mark; the clock goes on.
  Script& On(ThreadId thread) {
    thread_ = thread;
    return *this;
  }
  Script& Cpu(int64_t ns) {
    now_ += ns;
    cpu_[thread_] += ns;
    return *this;
  }
  Script& Blocked(int64_t ns) {
    now_ += ns;
    return *this;
  }
  Script& Descheduled(int64_t ns) {
    now_ += ns;
    delay_[thread_] += ns;
    return *this;
  }
  Script& GilWait(int64_t ns, ThreadId holder = 9, StackId stack = 3, int64_t run_delay_ns = 0, uint8_t flags = 0) {
    Event e = Make(EventKind::kGilWait);
    e.end_ns = now_ += ns;
    e.object = holder;
    e.stack = stack;
    e.run_delay_ns = run_delay_ns;
    e.flags = flags;
    delay_[thread_] += run_delay_ns;
    return Put(e);
  }
  // Of a free-threaded interpreter.
  Script& RuntimeWait(GilWaitKind kind, int64_t ns, ThreadId other = 9, StackId stack = 3) {
    Event e = Make(EventKind::kGilWait);
    e.what = static_cast<uint8_t>(kind);
    e.end_ns = now_ += ns;
    e.object = other;
    e.stack = stack;
    return Put(e);
  }
  // The sampler saw the thread in `state` just now.
  Script& Sample(SampleState state, int64_t ns = 4_ms, StackId stack = 1, int64_t code = 0) {
    Event e = Make(EventKind::kSample);
    e.start_ns = now_ - ns;
    e.what = static_cast<uint8_t>(state);
    e.stack = stack;
    e.value = code;
    return Put(e);
  }
  Script& Hold(ThreadId holder, StackId stack, int64_t ns = 4_ms) {
    Event e = Make(EventKind::kHold);
    e.thread = 0;
    e.start_ns = now_ - ns;
    e.object = holder;
    e.stack = stack;
    return Put(e);
  }
  // Where another thread was while this one slept in a lock.
  Script& Beside(ThreadId other, StackId stack, int64_t ns = 4_ms, BesideSign sign = BesideSign::kNotKnown) {
    Event e = Make(EventKind::kBeside);
    e.what = static_cast<uint8_t>(sign);
    e.thread = 0;
    e.start_ns = now_ - ns;
    e.object = other;
    e.stack = stack;
    return Put(e);
  }
  Script& Throttled(int64_t cumulative_ns) {
    Event e = Make(EventKind::kHost);
    e.thread = 0;
    e.value = cumulative_ns;
    return Put(e);
  }

  // The thread is in a call for `ns`; on CPU, or asleep.
  Script& Call(HostCall call, int64_t ns, uint64_t correlation = 0, bool on_cpu = true, uint8_t flags = 0) {
    Event e = Make(EventKind::kCall);
    e.what = static_cast<uint8_t>(call);
    e.value = static_cast<int64_t>(correlation);
    e.end_ns = now_ += ns;
    if (on_cpu) cpu_[thread_] += ns;
    e.flags = flags;
    return Put(e);
  }
  // What a device does, at any time: comes when its end has passed.
  Script& Op(const DeviceOp& op) {
    ops_.emplace(op.end_ns, op);
    return *this;
  }
  Script& Kernel(int64_t start_ns, int64_t end_ns, uint64_t correlation = 0, uint32_t name = 0, uint32_t device = 0,
                 uint32_t stream = 7) {
    DeviceOp op{};
    op.start_ns = start_ns;
    op.end_ns = end_ns;
    op.correlation = correlation;
    op.name = name;
    op.device = device;
    op.stream = stream;
    op.kind = DeviceOpKind::kKernel;
    return Op(op);
  }
  Script& Copy(int64_t start_ns, int64_t end_ns, uint64_t correlation, CopyDirection direction, MemoryKind from,
               MemoryKind to, int64_t bytes, uint32_t device = 0) {
    DeviceOp op{};
    op.start_ns = start_ns;
    op.end_ns = end_ns;
    op.correlation = correlation;
    op.bytes = bytes;
    op.device = device;
    op.stream = 8;
    op.kind = DeviceOpKind::kMemcpy;
    op.direction = direction;
    op.from = from;
    op.to = to;
    return Op(op);
  }
  // A launch call of `launch_ns`, and its kernel of `ns`, which starts `after_ns` after the call or when the one before
  // is done.
  Script& Launch(int64_t launch_ns, int64_t ns, int64_t after_ns = 5'000, uint32_t name = 0) {
    const uint64_t correlation = next_correlation_++;
    Call(HostCall::kLaunchKernel, launch_ns, correlation);
    const int64_t start_ns = std::max(now_ + after_ns, stream_free_ns_);
    stream_free_ns_ = start_ns + ns;
    return Kernel(start_ns, stream_free_ns_, correlation, name);
  }
  // Waits until the device has done what was launched.
  Script& Sync(bool spins = true, HostCall call = HostCall::kStreamSync) {
    return Call(call, std::max<int64_t>(stream_free_ns_ + 2'000 - now_, 1'000), next_correlation_++, spins);
  }
  Script& NoCpuTime() {
    no_cpu_time_ = true;
    return *this;
  }
  int64_t stream_free_ns() const { return stream_free_ns_; }

  // Marks.
  Script& Begin(Bracket bracket, uint32_t object = 0, int64_t value = -1, uint8_t flags = 0,
                Phase phase = Phase::kOther) {
    Event e = Make(EventKind::kBegin);
    e.what = static_cast<uint8_t>(bracket);
    e.object = object;
    e.value = value;
    e.flags |= flags;
    e.phase = static_cast<uint8_t>(phase);
    return Put(e);
  }
  Script& End(Bracket bracket, int64_t value = 0, Phase phase = Phase::kOther) {
    Event e = Make(EventKind::kEnd);
    e.what = static_cast<uint8_t>(bracket);
    e.value = value;
    e.phase = static_cast<uint8_t>(phase);
    return Put(e);
  }
  Script& RunStep() { return Put(Make(EventKind::kStep)); }
  Script& WatchBegins() { return Put(Make(EventKind::kWatchBegins)); }
  Script& WatchEnds() { return Put(Make(EventKind::kWatchEnds)); }

  // The pieces of loops.
  Script& LoaderStart(uint32_t loader, int64_t ns) {
    return Begin(Bracket::kLoaderStart, loader).Blocked(ns).End(Bracket::kLoaderStart);
  }
  Script& Fetch(uint32_t loader, int64_t ns, uint8_t flags = 0, FetchEnd how = kFetchedBatch) {
    return Begin(Bracket::kFetch, loader, -1, flags).Blocked(ns).End(Bracket::kFetch, how);
  }
  Script& Exhausted(uint32_t loader, uint8_t flags = 0) { return Fetch(loader, 100_us, flags, kFetchExhausted); }
  Script& Forward(int64_t ns) { return Cpu(ns); }
  Script& Backward(int64_t ns) { return Begin(Bracket::kBackward).Cpu(ns).End(Bracket::kBackward); }
  Script& Optimizer(uint32_t optimizer, int64_t ns) {
    return Begin(Bracket::kOptimizer, optimizer).Cpu(ns).End(Bracket::kOptimizer);
  }

  void Finish() {
    FeedOps(INT64_MAX);
    timeline_.Finish(now_);
  }

  Timeline& timeline() { return timeline_; }
  RecordingSink& sink() { return sink_; }
  const std::vector<Step>& steps() const { return sink_.steps; }
  int64_t now() const { return now_; }
  int64_t Phases(Phase phase) const {
    int64_t sum = 0;
    for (const Step& step : sink_.steps) sum += step.phase(phase);
    return sum;
  }
  std::vector<Span> Spans(SpanKind kind) const {
    std::vector<Span> found;
    for (const Span& span : sink_.spans) {
      if (span.kind == kind) found.push_back(span);
    }
    return found;
  }
  std::vector<Detail> Details(DetailKind kind) const {
    std::vector<Detail> found;
    for (const Detail& detail : sink_.details) {
      if (detail.kind == kind) found.push_back(detail);
    }
    return found;
  }

 private:
  Event Make(EventKind kind) {
    Event e{};
    e.kind = kind;
    e.thread = thread_;
    e.start_ns = e.end_ns = now_;
    e.cpu_ns = cpu_[thread_];
    e.run_delay_ns = delay_[thread_];
    if (IsMark(e) || kind == EventKind::kWatchBegins || kind == EventKind::kWatchEnds) {
      e.flags = no_cpu_time_ ? kNoCpuTime : kHasRunDelay;
    }
    return e;
  }
  void FeedOps(int64_t until_ns) {
    while (!ops_.empty() && ops_.begin()->first <= until_ns) {
      timeline_.Add(ops_.begin()->second);
      ops_.erase(ops_.begin());
    }
  }
  Script& Put(const Event& event) {
    FeedOps(event.end_ns);
    timeline_.Add(event);
    return *this;
  }

  RecordingSink sink_;
  Timeline timeline_;
  int64_t now_ = 1'000'000'000;
  ThreadId thread_ = 1;
  std::multimap<int64_t, DeviceOp> ops_;
  uint64_t next_correlation_ = 1;
  int64_t stream_free_ns_ = 0;
  bool no_cpu_time_ = false;
  std::map<ThreadId, int64_t> cpu_;
  std::map<ThreadId, int64_t> delay_;
};

// Steps whose forward is what the test says.
template <typename Forward>
void Loop(Script& loop, int steps, Forward&& forward) {
  for (int i = 0; i < steps; ++i) {
    loop.Fetch(kTrain, 100_us);
    forward(i);
    loop.Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
}

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_SCRIPT_H_
