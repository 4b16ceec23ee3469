// For tests: a training loop written down as what its threads do, on a fake clock, and a sink that remembers.
//
//   Script loop;
//   loop.Fetch(kLoader, 2_ms).Cpu(5_ms).Backward(4_ms).Optimizer(kAdam, 1_ms);
//   loop.Finish();
//   loop.steps()[0].phase_ms(Phase::kForward) ...

#ifndef TRAINPERF_TIMELINE_SCRIPT_H_
#define TRAINPERF_TIMELINE_SCRIPT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {

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
};

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
  void OnFetch(const FetchRecord& fetch) override {
    if (keep) fetches.push_back(fetch);
  }

  bool keep = true;
  bool touching = true;  // false: the step thread may change
  size_t max_segments = 256;
  int64_t count = 0;
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
  Script& Throttled(int64_t cumulative_ns) {
    Event e = Make(EventKind::kHost);
    e.thread = 0;
    e.value = cumulative_ns;
    return Put(e);
  }

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

  void Finish() { timeline_.Finish(now_); }

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
    if (kind == EventKind::kStep || kind == EventKind::kBegin || kind == EventKind::kEnd) e.flags = kHasRunDelay;
    return e;
  }
  Script& Put(const Event& event) {
    timeline_.Add(event);
    return *this;
  }

  RecordingSink sink_;
  Timeline timeline_;
  int64_t now_ = 1'000'000'000;
  ThreadId thread_ = 1;
  std::map<ThreadId, int64_t> cpu_;
  std::map<ThreadId, int64_t> delay_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_SCRIPT_H_
