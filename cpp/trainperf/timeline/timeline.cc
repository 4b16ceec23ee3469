#include "trainperf/timeline/timeline.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "trainperf/timeline/early_events.h"
#include "trainperf/timeline/loader_log.h"
#include "trainperf/timeline/other_threads.h"
#include "trainperf/timeline/step_lane.h"
#include "trainperf/timeline/step_writer.h"

namespace trainperf {
namespace {

constexpr int64_t kMaxNs = int64_t{1} << 61;    // no sum of differences below it overflows
constexpr int64_t kMaxOpNs = int64_t{1} << 50;  // likewise of thousands
constexpr uint32_t kMaxName = 1 << 20;
constexpr int kTakeOverBackwards = 3;
constexpr int kTrainsTooBackwards = 10;  // fewer are no training
constexpr int kInfersBatches = 4;        // fewer are a look at the data

bool BeginsBackward(const Event& event) {
  return event.kind == EventKind::kBegin && event.what == static_cast<uint8_t>(Bracket::kBackward);
}

bool EndsBatch(const Event& event) {
  if (event.kind != EventKind::kEnd || event.what != static_cast<uint8_t>(Bracket::kFetch)) return false;
  const FetchEnd how = FetchEndOf(event.value);
  return how == kFetchedBatch || how == kFetchedBehind;
}

bool BeginsLoop(const Event& event) {
  if (event.kind == EventKind::kStep) return true;
  return event.kind == EventKind::kBegin && (event.what == static_cast<uint8_t>(Bracket::kBackward) ||
                                             event.what == static_cast<uint8_t>(Bracket::kFetch) ||
                                             event.what == static_cast<uint8_t>(Bracket::kLoaderStart));
}

// Times from anywhere: within bounds, and no end before its start.
Event Sane(Event event) {
  event.end_ns = std::clamp<int64_t>(event.end_ns, 0, kMaxNs);
  event.start_ns = std::clamp<int64_t>(event.start_ns, 0, event.end_ns);
  event.cpu_ns = std::clamp<int64_t>(event.cpu_ns, 0, kMaxNs);
  event.run_delay_ns = std::clamp<int64_t>(event.run_delay_ns, 0, kMaxNs);
  return event;
}

DeviceOp Sane(DeviceOp op) {
  op.end_ns = std::clamp<int64_t>(op.end_ns, 0, kMaxNs);
  op.start_ns = std::clamp<int64_t>(op.start_ns, std::max<int64_t>(op.end_ns - kMaxOpNs, 0), op.end_ns);
  op.bytes = std::clamp<int64_t>(op.bytes, -1, kMaxOpNs);
  if (op.name > kMaxName) op.name = 0;
  return op;
}

}  // namespace

// Sends each event to where it belongs: the step thread's lane, the other threads, or, while nobody has trained yet,
// aside.
class Timeline::Impl {
 public:
  Impl(const TimelineOptions& options, TimelineSink* sink)
      : sink_(sink), device_(options.max_segments), writer_(options, sink, &device_) {
    others_.emplace(&loaders_, sink);
  }

  void Add(const Event& raw) {
    const Event event = Sane(raw);
    if (first_ns_ < 0) first_ns_ = event.start_ns;
    SawTime(event.end_ns, (event.flags & kPutOff) != 0);
    if (event.kind == EventKind::kCall) {
      AddCall(event);
    } else if (event.kind == EventKind::kWatchBegins) {
      watch_begins_ = event;
      if (lane_ && event.thread == thread_ && lane_->watch_ended()) {
        Resume();
        lane_->OnMark(event);
      }
    } else if (event.kind == EventKind::kWatchEnds) {
      if (lane_ && event.thread == thread_) WatchEnds(event);
    } else if (thread_ != 0 && !infers_) {
      Dispatch(event);
    } else if (event.thread != 0 && (BeginsBackward(event) || event.kind == EventKind::kStep)) {
      if (infers_) TakeBack();
      SetStepThread(event);
      Dispatch(event);
    } else {
      early_.Add(event);
      if (infers_) {
        Dispatch(event);
      } else if (EndsBatch(event)) {
        ConsiderInference(event.thread);
      }
    }
    SettleDevices();
  }

  void Add(const DeviceOp& raw) {
    const DeviceOp op = Sane(raw);
    SawTime(op.end_ns);
    device_.OnOp(op);
    if (!device_seen_) OpenDevices();
    SettleDevices();
  }

  void SetNames(const NameTable* names) { device_.SetNames(names); }
  void AwaitSample() { writer_.AwaitSample(); }
  void WriteWaiting() { writer_.WriteWaiting(); }
  void MarkDeviceIncomplete(uint32_t device) { device_.MarkIncomplete(device); }
  void BeginUntraced(int64_t at_ns) { device_.BeginUntraced(at_ns); }
  void EndUntraced(uint32_t device, int64_t on_ns, int64_t at_ns) { device_.EndUntraced(device, on_ns, at_ns); }

  void AdvanceTo(int64_t watermark_ns) {
    watermark_ns = std::clamp<int64_t>(watermark_ns, 0, kMaxNs);
    if (lane_) lane_->AdvanceTo(watermark_ns);
    progress_ns_ = std::max(progress_ns_, watermark_ns);
    SettleDevices();
    writer_.AdvanceTo(watermark_ns);
  }

  void Finish(int64_t end_ns) {
    if (finished_) return;
    finished_ = true;
    const std::vector<Event> early = early_.Take();
    for (size_t i = 0; i < early.size() && !infers_; ++i) others_->Add(early[i]);
    if (lane_) {
      lane_->Finish(std::clamp<int64_t>(end_ns, 0, kMaxNs));
      Retire();
    }
    writer_.Flush();
    device_.SettleAll(kMaxNs);
    writer_.WriteSettled();
  }

  void MarkIncomplete() {
    if (lane_) lane_->MarkIncomplete();
  }

  bool finished() const { return finished_; }
  ThreadId step_thread() const { return thread_; }
  int64_t steps_closed() const { return writer_.steps_closed(); }
  int64_t late_events() const { return late_; }
  int64_t refused_ops() const { return device_.refused_ops(); }
  bool another_trains_too() const { return backwards_beside_ >= kTrainsTooBackwards; }
  int64_t incomplete_steps() const { return incomplete_ + (lane_ ? lane_->cutter().incomplete() : 0); }
  int64_t first_step_ns() const {
    if (first_step_ns_ >= 0) return first_step_ns_;
    return lane_ && lane_->cutter().started() ? lane_->cutter().first_step_ns() : -1;
  }
  int64_t lead_ns() const {
    const int64_t first_step = first_step_ns();
    return first_step < 0 ? 0 : std::max<int64_t>(first_step - first_ns_, 0);
  }

 private:
  void SawTime(int64_t end_ns, bool may_be_late = false) {
    if (end_ns < latest_ns_ && !may_be_late) ++late_;
    latest_ns_ = std::max(latest_ns_, end_ns);
    progress_ns_ = std::max(progress_ns_, latest_ns_);
  }

  void AddCall(const Event& event) {
    if (event.what >= kHostCallCount) return;
    const int64_t waited_until_ns = device_.OnCall(event);
    if (!device_seen_ && device_.active()) OpenDevices();
    if (thread_ == 0 || infers_) early_.AddCall({event, waited_until_ns});
    if (thread_ != 0) DispatchCall(event, waited_until_ns);
  }

  void DispatchCall(const Event& event, int64_t waited_until_ns) {
    device_.CountCall(event);
    if (event.thread == thread_) {
      lane_->OnCall(event, waited_until_ns);
    } else {
      device_.launchers().OnCall(event, waited_until_ns);
      lane_->OnOthersCall(event, waited_until_ns);
    }
  }

  // The last step ends here, or where its thread's last mark is.
  void WatchEnds(const Event& event) {
    if (device_seen_) {
      device_.OpenCell(lane_->last_mark_ns());
      device_.OpenCell(event.end_ns);
    }
    lane_->OnWatchEnds(event);
  }

  // The first sign of a device.
  void OpenDevices() {
    device_seen_ = true;
    if (lane_) lane_->KeepHostLog();
    writer_.OpenCells(lane_ ? &lane_->cutter().pieces() : nullptr);
  }

  void SettleDevices() {
    if (!device_seen_) return;
    // Before there is a step thread, nobody knows where its first step starts.
    device_.Settle(progress_ns_, infers_ ? OpenStepNs() : lane_ ? lane_->last_mark_ns() : floor_ns_);
    writer_.WriteSettled();
  }

  void SetStepThread(const Event& trains) {
    thread_ = trains.thread;
    device_.SetStepThread(thread_);
    lane_.emplace(&writer_, &loaders_, floor_ns_);
    if (device_seen_) lane_->KeepHostLog();
    // Where run.step() is all that the loop has, nothing else tells where it begins.
    const bool only_steps = trains.kind == EventKind::kStep && !early_.HasMarks(thread_);
    if (only_steps && watch_begins_.thread == thread_) early_.Add(watch_begins_);
    early_.Replay(
        [this](const Event& event) {
          if (event.end_ns >= replay_from_ns_) Dispatch(event);
        },
        [this](const Event& event, int64_t until_ns) {
          if (event.end_ns >= replay_from_ns_) DispatchCall(event, until_ns);
        });
  }

  // Nothing trains, and this thread goes through a DataLoader: as far as is known, that is what the run is for.
  // Training may yet come; then these were no steps (TakeBack), so what is early is kept all the while.
  void ConsiderInference(ThreadId thread) {
    if (thread == 0 || (watch_begins_.thread != 0 && thread != watch_begins_.thread))
      return;  // it may load for another
    if (thread != fetches_) batches_ = 0;
    fetches_ = thread;
    if (++batches_ < kInfersBatches) return;
    infers_ = true;
    thread_ = thread;
    device_.SetStepThread(thread_);
    lane_.emplace(&writer_, &loaders_, floor_ns_, true);
    if (device_seen_) lane_->KeepHostLog();
    early_.ReplayAndKeep([this](const Event& event) { Dispatch(event); },
                         [this](const Event& event, int64_t until_ns) { DispatchCall(event, until_ns); });
  }

  int64_t OpenStepNs() const {
    const auto& pieces = lane_->cutter().pieces();
    return pieces.empty() ? floor_ns_ : pieces.front()->start_ns;
  }

  // Training begins: as if nobody had guessed that it would not. Of a device, what was before the batch at hand is
  // settled, and begins no step any more.
  void TakeBack() {
    floor_ns_ = replay_from_ns_ = device_seen_ ? OpenStepNs() : 0;
    lane_->Discard();
    lane_.reset();
    writer_.TakeBack();
    loaders_ = LoaderLog();
    others_.emplace(&loaders_, sink_);
    infers_ = false;
    thread_ = 0;
    first_step_ns_ = -1;
    incomplete_ = 0;
    sink_->OnTakenBack();
  }

  void Dispatch(const Event& event) {
    switch (event.kind) {
      case EventKind::kHold:
        lane_->OnOther(DetailKind::kHold, event);
        if (device_seen_) device_.launchers().OnHold(event);
        return;
      case EventKind::kBeside:
        lane_->OnOther(DetailKind::kBeside, event);
        return;
      case EventKind::kHost:
        lane_->OnHost(event);
        return;
      default:
        break;
    }
    if (event.thread != thread_) {
      lane_->OnOthersEvent(event);
      if (device_seen_) device_.launchers().OnEvent(event);
      others_->Add(event);
      if (event.thread != 0 && BeginsBackward(event)) ConsiderTakeOver(event);
      return;
    }
    if (IsMark(event) || event.kind == EventKind::kWatchBegins) {
      if (lane_->watch_ended() && BeginsLoop(event)) Resume();
      lane_->OnMark(event);
      if (rival_ != 0) backwards_beside_ += rival_backwards_;
      rival_ = 0;
    } else if (event.kind == EventKind::kGilWait) {
      lane_->OnGilWait(event);
    } else if (event.kind == EventKind::kSample) {
      lane_->OnSample(event);
    }
  }

  // The step thread has gone quiet, or has ended, and another one trains: each fold of a cross-validation in a thread
  // of its own, for one. While the step thread is inside a backward, others only help it.
  void ConsiderTakeOver(const Event& event) {
    if (lane_->in_backward()) return;
    rival_backwards_ = event.thread == rival_ ? rival_backwards_ + 1 : 1;
    rival_ = event.thread;
    if (rival_backwards_ < kTakeOverBackwards) return;
    floor_ns_ = lane_->last_mark_ns();
    lane_->Finish(floor_ns_);
    Retire();
    rival_ = 0;
    SetStepThread(event);
    lane_->OnMark(event);
  }

  // The loop had ended, and may begin again: in a notebook's next cell, or between two, by a task that goes on. What
  // was between is in no step.
  void Resume() {
    floor_ns_ = std::max(lane_->last_mark_ns(), lane_->watch_ends_ns());
    lane_->Finish(floor_ns_);
    Retire();
    lane_.emplace(&writer_, &loaders_, floor_ns_, infers_);
    if (device_seen_) lane_->KeepHostLog();
  }

  void Retire() {
    if (first_step_ns_ < 0 && lane_->cutter().started()) first_step_ns_ = lane_->cutter().first_step_ns();
    incomplete_ += lane_->cutter().incomplete();
    lane_.reset();
  }

  TimelineSink* const sink_;
  DeviceLane device_;
  StepWriter writer_;
  LoaderLog loaders_;
  std::optional<OtherThreads> others_;
  EarlyEvents early_;
  std::optional<StepLane> lane_;
  Event watch_begins_{};
  ThreadId thread_ = 0;
  bool infers_ = false;   // thread_ does, and nothing has trained yet
  ThreadId fetches_ = 0;  // and may come to infer
  int batches_ = 0;
  int64_t replay_from_ns_ = 0;
  ThreadId rival_ = 0;
  int rival_backwards_ = 0;
  int64_t backwards_beside_ = 0;  // begun by other threads while the step thread trained on
  int64_t floor_ns_ = 0;
  int64_t first_ns_ = -1;
  int64_t first_step_ns_ = -1;
  int64_t latest_ns_ = 0;
  int64_t progress_ns_ = 0;  // nothing older comes
  bool device_seen_ = false;
  int64_t late_ = 0;
  int64_t incomplete_ = 0;
  bool finished_ = false;
};

Timeline::Timeline(const TimelineOptions& options, TimelineSink* sink) : impl_(std::make_unique<Impl>(options, sink)) {}
Timeline::~Timeline() = default;

void Timeline::Add(const Event& event) {
  if (!impl_->finished()) impl_->Add(event);
}
void Timeline::Add(const DeviceOp& op) {
  if (!impl_->finished()) impl_->Add(op);
}
void Timeline::SetNames(const NameTable* names) { impl_->SetNames(names); }
void Timeline::AwaitSample() { impl_->AwaitSample(); }
void Timeline::WriteWaiting() {
  if (!impl_->finished()) impl_->WriteWaiting();
}
void Timeline::MarkDeviceIncomplete(uint32_t device) {
  if (!impl_->finished()) impl_->MarkDeviceIncomplete(device);
}
void Timeline::BeginUntraced(int64_t at_ns) {
  if (!impl_->finished()) impl_->BeginUntraced(at_ns);
}
void Timeline::EndUntraced(uint32_t device, int64_t on_ns, int64_t at_ns) {
  if (!impl_->finished()) impl_->EndUntraced(device, on_ns, at_ns);
}
void Timeline::AdvanceTo(int64_t watermark_ns) {
  if (!impl_->finished()) impl_->AdvanceTo(watermark_ns);
}
void Timeline::Finish(int64_t end_ns) { impl_->Finish(end_ns); }
void Timeline::MarkIncomplete() { impl_->MarkIncomplete(); }
ThreadId Timeline::step_thread() const { return impl_->step_thread(); }
int64_t Timeline::steps_closed() const { return impl_->steps_closed(); }
int64_t Timeline::first_step_ns() const { return impl_->first_step_ns(); }
int64_t Timeline::lead_ns() const { return impl_->lead_ns(); }
int64_t Timeline::incomplete_steps() const { return impl_->incomplete_steps(); }
int64_t Timeline::late_events() const { return impl_->late_events(); }
int64_t Timeline::refused_ops() const { return impl_->refused_ops(); }
bool Timeline::another_trains_too() const { return impl_->another_trains_too(); }
std::string Timeline::RefusedOpsNote() {
  return absl::StrCat("more than ", kMaxDevices, " devices were used: the run tells of the first ", kMaxDevices,
                      " of them only");
}

}  // namespace trainperf
