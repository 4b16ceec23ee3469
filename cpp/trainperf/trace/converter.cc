#include "trainperf/trace/converter.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/trace/host_lane.h"
#include "trainperf/trace/launch_queue.h"
#include "trainperf/trace/trace_stacks.h"

namespace trainperf {
namespace {

constexpr int64_t kReleaseEvery = 8192;  // records
constexpr size_t kMaxLoaders = 64;
constexpr size_t kMaxHeld = 1 << 18;  // events, while a backward goes on and on

class Converter {
 public:
  Converter(Trace* trace, const StepPlan& plan, StackTable* stacks, EventFeed* feed, ConvertStats* stats)
      : trace_(trace),
        plan_(plan),
        names_(&trace->tables.host_names(), stacks),
        feed_(feed),
        stats_(stats),
        host_(trace->host.Merge()),
        device_(trace->device.Merge()),
        zero_ns_(trace->zero_ns()) {
    NextOp();
    lanes_.resize(trace->threads.size());
    infer_backward_ = plan.thread != 0 && !trace->threads[plan.thread].python_backward;
  }

  absl::Status Run(const std::function<bool()>& go_on) {
    int64_t records = 0;
    while (const HostRecord* next = host_.Next()) {
      HostRecord record = *next;
      record.start_ns -= zero_ns_;
      record.end_ns -= zero_ns_;
      record.thread = trace_->thread_ids[record.thread];
      while (next_cut_ < plan_.cuts.size() && plan_.cuts[next_cut_] - zero_ns_ <= record.start_ns) Cut();
      Add(record);
      if (++records % kReleaseEvery != 0) continue;
      if (go_on && !go_on()) return absl::CancelledError("stopped");
      Release(record.start_ns);
    }
    while (next_cut_ < plan_.cuts.size()) Cut();
    EndBackward();
    if (loader_ != 0) StepLane().Mark(EventKind::kStep, Bracket::kFetch, trace_->last_ns - zero_ns_);
    Release(INT64_MAX);
    for (const auto& lane : lanes_) stats_->too_deep += lane ? lane->too_deep() : 0;
    TRAINPERF_RETURN_IF_ERROR(host_.status());
    return device_.status();
  }

 private:
  HostLane& LaneOf(uint16_t thread) {
    if (thread >= lanes_.size()) lanes_.resize(thread + size_t{1});
    auto& lane = lanes_[thread];
    if (lane == nullptr) {
      lane = std::make_unique<HostLane>(thread, &names_);
      in_use_.push_back(lane.get());
    }
    return *lane;
  }
  HostLane& StepLane() { return LaneOf(plan_.thread == 0 ? 1 : plan_.thread); }

  void Cut() {
    const int64_t at_ns = plan_.cuts[next_cut_++] - zero_ns_;
    if (in_backward_ && at_ns >= backward_end_ns_) EndBackward();
    StepLane().Mark(EventKind::kStep, Bracket::kFetch, at_ns);
  }

  void Add(const HostRecord& record) {
    HostLane& lane = LaneOf(record.thread);
    const bool on_step_thread = record.thread == plan_.thread;
    if (infer_backward_ && record.kind == RecordKind::kBackwardOp) {
      if (!in_backward_) {
        in_backward_ = true;
        backward_end_ns_ = record.start_ns;
        StepLane().Mark(EventKind::kBegin, Bracket::kBackward, record.start_ns);
      }
      backward_end_ns_ = std::max(backward_end_ns_, record.end_ns);
    } else if (in_backward_ && on_step_thread && record.start_ns >= backward_end_ns_) {
      EndBackward();  // the step thread goes on
    }
    if (record.kind == RecordKind::kAnnotation && on_step_thread) CutAt(record);
    lane.Add(record, ObjectOf(record));
  }

  // Loaders and optimizers are told apart by the names of their spans, and counted as they come.
  uint32_t ObjectOf(const HostRecord& record) {
    const TraceBracket bracket = static_cast<TraceBracket>(record.what);
    const bool fetch = bracket == TraceBracket::kFetch;
    if (record.kind != RecordKind::kAnnotation || (!fetch && bracket != TraceBracket::kOptimizer)) return 0;
    const uint32_t next = static_cast<uint32_t>(objects_.size() + 1);
    const auto [object, added] = objects_.try_emplace(record.name, next);
    if (added && fetch && stats_->loaders.size() < kMaxLoaders) stats_->loaders.push_back({next, record.name});
    return object->second;
  }

  // Traces without marks and without a backward: an annotation is the mark.
  void CutAt(const HostRecord& record) {
    const TraceBracket bracket = static_cast<TraceBracket>(record.what);
    if (plan_.cut_at_fetches && bracket == TraceBracket::kFetch && (loader_ == 0 || loader_ == record.name)) {
      loader_ = record.name;
      StepLane().Mark(EventKind::kStep, Bracket::kFetch, record.start_ns);
    }
  }

  void EndBackward() {
    if (!in_backward_) return;
    in_backward_ = false;
    StepLane().Mark(EventKind::kEnd, Bracket::kBackward, backward_end_ns_);
  }

  // Hands on what can no longer change: everything that ends before `now_ns`.
  void Release(int64_t now_ns) {
    int64_t until_ns = now_ns;
    if (in_backward_) {
      if (StepLane().events().size() > kMaxHeld && now_ns > backward_end_ns_) EndBackward();
      if (in_backward_) until_ns = std::min(until_ns, backward_end_ns_);
    }
    heads_.clear();
    for (HostLane* lane : in_use_) {
      lane->AdvanceTo(until_ns);
      if (lane->taken < lane->events().size()) heads_.push_back(lane);
    }
    const auto later = [](const HostLane* a, const HostLane* b) {
      return const_cast<HostLane*>(a)->events()[a->taken].end_ns > const_cast<HostLane*>(b)->events()[b->taken].end_ns;
    };
    std::make_heap(heads_.begin(), heads_.end(), later);
    while (!heads_.empty()) {
      std::pop_heap(heads_.begin(), heads_.end(), later);
      HostLane* const lane = heads_.back();
      // Up to where the next lane has something; most of the time there is one lane only.
      const int64_t others_ns = heads_.size() > 1 ? heads_[0]->events()[heads_[0]->taken].end_ns : INT64_MAX;
      std::vector<Event>& events = lane->events();
      while (lane->taken < events.size() && events[lane->taken].end_ns <= until_ns &&
             events[lane->taken].end_ns <= others_ns) {
        Put(&events[lane->taken++]);
      }
      if (lane->taken < events.size() && events[lane->taken].end_ns <= until_ns) {
        std::push_heap(heads_.begin(), heads_.end(), later);
      } else {
        heads_.pop_back();
      }
    }
    for (HostLane* lane : in_use_) {
      if (lane->taken < lane->events().size() / 2) continue;
      lane->events().erase(lane->events().begin(), lane->events().begin() + static_cast<std::ptrdiff_t>(lane->taken));
      lane->taken = 0;
    }
    PutOps(until_ns);
    if (until_ns != INT64_MAX) feed_->AdvanceTo(until_ns);
  }

  void Put(Event* event) {
    PutOps(event->end_ns - 1);
    const HostCall call = static_cast<HostCall>(event->what);
    if (event->kind == EventKind::kCall && (call == HostCall::kLaunchKernel || call == HostCall::kMemcpy ||
                                            call == HostCall::kMemset || call == HostCall::kLaunchGraph)) {
      if (queue_.OnLaunch(*event) && call == HostCall::kLaunchKernel) {
        // The launch itself stays, for what it launched; the time before it was a wait.
        Event wait = *event;
        wait.what = static_cast<uint8_t>(HostCall::kQueueFull);
        wait.value = 0;
        feed_->OnEvent(wait);
        event->start_ns = event->end_ns;
        ++stats_->queue_full;
      }
    }
    feed_->OnEvent(*event);
    if (plan_.cut_at_optimizer && event->kind == EventKind::kEnd && event->thread == plan_.thread &&
        event->what == static_cast<uint8_t>(Bracket::kOptimizer)) {
      Event step = *event;
      step.kind = EventKind::kStep;
      feed_->OnEvent(step);
    }
  }

  void PutOps(int64_t until_ns) {
    for (; more_ops_ && op_.end_ns <= until_ns; NextOp()) {
      queue_.OnOp(op_);
      feed_->OnOp(op_);
    }
  }

  void NextOp() {
    const DeviceOp* const next = device_.Next();
    more_ops_ = next != nullptr;
    if (!more_ops_) return;
    op_ = *next;
    op_.start_ns -= zero_ns_;
    op_.end_ns -= zero_ns_;
  }

  Trace* const trace_;
  const StepPlan& plan_;
  TraceStacks names_;
  EventFeed* const feed_;
  ConvertStats* const stats_;
  RunSorter<HostRecord, HostRecordOrder>::Merger host_;
  RunSorter<DeviceOp, DeviceOpOrder>::Merger device_;
  const int64_t zero_ns_;
  DeviceOp op_{};
  bool more_ops_ = false;
  LaunchQueue queue_;
  std::vector<std::unique_ptr<HostLane>> lanes_;
  std::vector<HostLane*> in_use_;
  std::vector<HostLane*> heads_;
  absl::flat_hash_map<uint32_t, uint32_t> objects_;  // by name
  bool infer_backward_ = false;
  bool in_backward_ = false;
  int64_t backward_end_ns_ = 0;
  size_t next_cut_ = 0;
  uint32_t loader_ = 0;
};

}  // namespace

absl::Status Convert(Trace* trace, const StepPlan& plan, StackTable* stacks, EventFeed* feed,
                     const std::function<bool()>& go_on, ConvertStats* stats) {
  return Converter(trace, plan, stacks, feed, stats).Run(go_on);
}

}  // namespace trainperf
