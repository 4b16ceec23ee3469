#include "trainperf/collect/device_feed.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/safe_points.h"

namespace trainperf {
namespace {

constexpr size_t kMaxWithoutLaunch = 4096;
// A kernel may seem to start 8 to 9 us before its launch does, by the skew of the device's clock; not more.
constexpr int64_t kSkewNs = 100'000;
// So long after a kernel's end its launch has returned. A tiny kernel ends before, and while a buffer with work in
// flight is withheld, looking again shows nothing new.
constexpr int64_t kLaunchReturnsNs = 100'000'000;
// A program that is bound by its launches must not lose the figures that show it: kernels are given up only when
// tracing costs its threads more than this share of their time, at some 50,000 launches a second.
constexpr double kBlindShare = 0.15;
// The other half of the budget is for the rest of the watch: marks, samples, the callbacks of other calls.
constexpr double kOfBudget = 0.5;
constexpr size_t kMostWindows = 64;  // within the time that events wait
constexpr int kWindowsCutOff = 2;    // one may have ended while a graph was captured, whose launches run nothing

bool ByEnd(const DeviceOp& a, const DeviceOp& b) { return a.end_ns < b.end_ns; }

}  // namespace

DeviceFeed::DeviceFeed(RunWriter* writer, Timeline* timeline, double budget, CudaSteps steps)
    : writer_(writer), timeline_(timeline), budget_(budget), steps_(steps), names_(kMaxNames) {
  timeline_->SetNames(&names_);
  writer_->SetNames(&names_);
}

bool DeviceFeed::Attach(const CudaTracerOptions& options) {
  if (tracer_ != nullptr) return true;
  absl::StatusOr<std::unique_ptr<CudaTracer>> tracer = CudaTracer::Start(options, &names_);
  if (!tracer.ok()) {
    writer_->SetTier("cuda", "off", std::string(tracer.status().message()));
    return false;
  }
  const std::lock_guard<std::mutex> lock(planning_);
  tracer_ = *std::move(tracer);
  judged_ns_ = drained_ns_ = NowNs();
  SafePoints::SetDue(SafePoints::kNever);
  if (steps_ == CudaSteps::kSome) {
    windows_.emplace(kOfBudget * budget_, static_cast<uint64_t>(judged_ns_), judged_ns_, SafePoints::passed());
  }
  writer_->SetMeta("cupti", absl::StrCat(tracer_->Version(), ", ", tracer_->file()));
  WriteTier();
  return true;
}

void DeviceFeed::Pause() {
  if (tracer_ == nullptr) return;
  const int64_t now_ns = NowNs();
  NoMoreSwitches();
  tracer_->Pause(&batch_);
  SetBlind(true, now_ns);
  WriteTier();
}

void DeviceFeed::Resume() {
  if (tracer_ == nullptr) return;
  tracer_->Resume();
  const std::lock_guard<std::mutex> lock(planning_);
  const int64_t now_ns = NowNs();
  if (tracer_->running()) SetBlind(false, now_ns);
  if (windows_ && tracer_->running()) {
    if (!windows_->tracing()) windows_on_ns_.push_back(now_ns);
    windows_->Restart(now_ns, SafePoints::passed(), CostNs());
    work_traced_ = true;
  }
  WriteTier();
}

void DeviceFeed::Abandon() {
  if (tracer_ == nullptr) return;
  SafePoints::SetDue(SafePoints::kNever);
  try {
    tracer_->Stop(&batch_);
  } catch (const std::exception&) {  // no memory for what it still had
  }
}

void DeviceFeed::WriteTier() {
  std::string why = tracer_->why();
  if (tracer_->paused()) {
    why = "torch.profiler has CUPTI";
  } else if (tracer_->tier() != CudaTier::kFull && why.empty()) {
    why = WhyLess();
  }
  const char* tier = CudaTierName(tracer_->tier());
  if (windows_ && tracer_->running() && (windows_->windows() > 1 || !windows_->tracing())) {
    tier = "cupti-windows";
    why = absl::StrCat(tracer_->why(), tracer_->why().empty() ? "" : "; ",
                       "kernels are traced in some of the steps, chosen by chance, within ", budget_ * 100,
                       " % of the time; cuda='full' traces all");
  }
  const std::string written = absl::StrCat(tier, ": ", why);
  if (written == tier_written_) return;
  tier_written_ = written;
  writer_->SetTier("cuda", tier, why);
}

// Why the tier is below the first.
std::string DeviceFeed::WhyLess() const {
  if (control_.tier() == CudaTier::kOff || windows_) {
    return absl::StrCat("for two seconds it cost more than ", budget_ * 100, " %, without kernels");
  }
  return absl::StrCat("for two seconds it cost more than ", std::max(budget_, kBlindShare) * 100,
                      " % of the program's time");
}

int64_t DeviceFeed::Drain(int64_t now_ns, int64_t host_watermark_ns, bool last, std::vector<Event>* events) {
  if (tracer_ == nullptr) return host_watermark_ns;
  const int64_t cpu_before = ThreadCpuNs();
  if (last) {
    NoMoreSwitches();
    tracer_->Stop(&batch_);
  } else {
    TakeSwitches();
    tracer_->Drain(now_ns, &batch_);
    WriteTier();
  }

  const int64_t late_before = late_;
  for (const CudaCallRecord& call : batch_.calls) {
    late_ += call.end_ns < fed_until_ns_;  // its buffer was withheld for longer than we wait
    folder_.Add(call);
  }
  if (late_ != late_before) MarkIncomplete();
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(held_from_));
  held_from_ = 0;
  for (DeviceOp& op : batch_.ops) {
    late_ += op.end_ns < fed_until_ns_;
    if (last && op.start_ns >= now_ns) continue;
    if (last) op.end_ns = std::min(op.end_ns, now_ns);  // what comes after the watch is not its own
    held_.push_back(op);
  }
  batch_.calls.clear();
  batch_.ops.clear();
  std::stable_sort(held_.begin(), held_.end(), ByEnd);

  int64_t until = host_watermark_ns;
  if (!last) until = std::min(until, std::max(tracer_->watermark_ns(), now_ns - kLongestHoldNs));
  if (held_.size() > kMaxHeld || folder_.pending() > CallFolder::kMaxPending) {
    ++unheld_;
    until = host_watermark_ns;
  }
  until = std::max(until, fed_until_ns_);

  const size_t first = events->size();
  folder_.TakeUpTo(until, events);
  for (size_t i = first; i < events->size(); ++i) launches_.Remember((*events)[i]);
  NoteLosses(now_ns, last);
  batch_.cut_off.clear();
  std::vector<DeviceOp> again;
  again.swap(without_launch_);
  for (const DeviceOp& op : again) {
    int64_t start_ns = 0;
    if (launches_.Saw(op.correlation, &start_ns)) continue;
    if (!last && until < op.end_ns + kLaunchReturnsNs) {
      without_launch_.push_back(op);
      continue;
    }
    ++unmatched_;  // the timeline marks its step
  }
  drained_ns_ = now_ns;
  drain_cpu_ns_ += ThreadCpuNs() - cpu_before;
  PlanWindow(now_ns);
  return until;
}

void DeviceFeed::FeedUpTo(int64_t until_ns) {
  if (!gaps_.empty()) MarkGaps(until_ns);
  for (; held_from_ < held_.size() && held_[held_from_].end_ns <= until_ns; ++held_from_) {
    const DeviceOp& op = held_[held_from_];
    MeetDevice(op.device);
    if (op.end_ns < fed_until_ns_) timeline_->MarkDeviceIncomplete(op.device);
    if (!windows_on_ns_.empty()) EndUntraced(op);
    CheckLaunch(op);
    timeline_->Add(op);
  }
  fed_until_ns_ = std::max(fed_until_ns_, until_ns);
}

void DeviceFeed::MeetDevice(uint32_t id) {
  if (std::find(devices_.begin(), devices_.end(), id) != devices_.end()) return;
  if (devices_.empty()) writer_->SetMeta("feeds_device", "1");
  devices_.push_back(id);
  const std::string name = tracer_->driver().DeviceName(id);
  if (incomplete_before_first_) timeline_->MarkDeviceIncomplete(id);
  incomplete_before_first_ = false;
  writer_->SetDevice(id, name.empty() ? absl::StrCat("GPU ", id) : name, tracer_->driver().DescribeDevice(id));
}

void DeviceFeed::CheckLaunch(const DeviceOp& op) {
  if (!sees_kernels() || op.correlation == 0) return;
  int64_t start_ns = 0;
  if (!launches_.Saw(op.correlation, &start_ns)) {
    if (without_launch_.size() < kMaxWithoutLaunch) without_launch_.push_back(op);
  } else if (op.start_ns < start_ns - kSkewNs) {
    ++before_launch_;
    timeline_->MarkDeviceIncomplete(op.device);
  }
}

// Work that was cut off ran after its launch, and before it was looked for.
int64_t DeviceFeed::LostSince() const {
  int64_t since_ns = INT64_MAX;
  for (const uint64_t correlation : batch_.cut_off) {
    int64_t launched_ns = 0;
    const bool known = correlation != 0 && launches_.Find(correlation, &launched_ns) && launched_ns != 0;
    since_ns = std::min(since_ns, known ? launched_ns : drained_ns_);
  }
  return since_ns;
}

// The host's idea of the device has a hole from the last look to this one.
void DeviceFeed::NoteLosses(int64_t now_ns, bool last) {
  const CudaTracer::Losses losses = tracer_->losses();
  const auto lost_ops = [](const CudaTracer::Losses& l) { return l.total() - l.buffers; };
  const int64_t grew = lost_ops(losses) - lost_ops(losses_before_);
  const bool only_cut_off = !batch_.cut_off.empty() && grew == static_cast<int64_t>(batch_.cut_off.size());
  if (grew > 0) gaps_.push_back({only_cut_off ? LostSince() : drained_ns_, now_ns});
  if (grew > 0 && !only_cut_off) lost_ns_ = now_ns;
  if (losses.buffers > 0 && losses_before_.buffers == 0) {
    writer_->AddNote(
        "CUPTI's buffers have not come back for 5 s: a kernel that long, or another tool has taken its callbacks; the "
        "device's figures of steps that end meanwhile are incomplete");
    steps_at_loss_ = timeline_->steps_closed();
  }
  losses_before_ = losses;
  if (last) return;  // it was looked at to the end
  // While a program waits that long for one kernel, or gives the device nothing, no step ends either.
  const bool lost = losses.buffers > 1 || (losses.buffers > 0 && timeline_->steps_closed() > steps_at_loss_);
  const bool blind = !sees_kernels() || lost;
  SetBlind(blind, blind ? drained_ns_ : now_ns);
}

void DeviceFeed::SetBlind(bool blind, int64_t since_ns) {
  if (blind == blind_) return;
  blind_ = blind;
  if (blind) {
    gaps_.push_back({since_ns, INT64_MAX});
    return;
  }
  for (Gap& gap : gaps_) gap.to_ns = std::min(gap.to_ns, since_ns);
}

void DeviceFeed::MarkIncomplete() {
  for (const uint32_t device : devices_) timeline_->MarkDeviceIncomplete(device);
  incomplete_before_first_ |= devices_.empty();
}

void DeviceFeed::MarkGaps(int64_t until_ns) {
  bool within = false;
  for (const Gap& gap : gaps_) within |= gap.from_ns <= until_ns;
  if (within) MarkIncomplete();
  gaps_.erase(std::remove_if(gaps_.begin(), gaps_.end(), [&](const Gap& gap) { return gap.to_ns < until_ns; }),
              gaps_.end());
}

int64_t DeviceFeed::CostNs() const {
  return tracer_ != nullptr ? tracer_->CostNs() + change_ns_.load(std::memory_order_relaxed) : 0;
}

void DeviceFeed::Change() {
  if (tracer_ == nullptr) return;
  if (!tracer_->running()) {
    tier_due_ = false;
    SafePoints::SetDue(SafePoints::kNever);
  } else if (tier_due_) {
    ChangeTier();
  }
}

bool DeviceFeed::SwitchWindow() {
  if (tier_due_) return false;
  const std::unique_lock<std::mutex> lock(planning_, std::try_to_lock);
  if (!lock.owns_lock()) return true;  // the next safe point will do
  if (!windows_ || !SafePoints::IsDue()) return true;
  const bool on = !work_traced_;
  const int64_t before_ns = NowNs();
  absl::Status status;
  if (!tracer_->TraceWork(on, &status)) return true;
  const int64_t passed = SafePoints::passed();
  // Of work, what is launched from here on is seen; or what was launched until here was.
  switches_.push_back({on ? NowNs() : before_ns, passed, on, std::move(status)});
  work_traced_ = on;
  SafePoints::SetDue(on ? passed + window_steps_ : SafePoints::kNever);
  return true;
}

// Of what the host did since then nothing was fed yet.
void DeviceFeed::TakeSwitches() {
  const std::lock_guard<std::mutex> lock(planning_);
  TakeSwitchesLocked();
}

void DeviceFeed::NoMoreSwitches() {
  const std::lock_guard<std::mutex> lock(planning_);
  TakeSwitchesLocked();
  SafePoints::SetDue(SafePoints::kNever);
}

void DeviceFeed::TakeSwitchesLocked() {
  for (const Switch& done : switches_) {
    windows_->Switched(done.ns, done.passed);
    if (!done.status.ok()) tracer_->GiveUp(done.status);
    if (!done.on) {
      timeline_->BeginUntraced(done.ns);
      if (ended_.size() < kMostWindows) ended_.push_back({windows_on_ns_.empty() ? 0 : windows_on_ns_.back(), done.ns});
      continue;
    }
    windows_on_ns_.push_back(done.ns);
    if (windows_on_ns_.size() > kMostWindows) windows_on_ns_.pop_front();
  }
  switches_.clear();
}

void DeviceFeed::PlanWindow(int64_t now_ns) {
  if (!windows_) return;
  if (!tracer_->running()) {
    NoMoreSwitches();
    return;
  }
  if (const int64_t change_ns = change_ns_.load(std::memory_order_relaxed); change_ns != change_told_ns_) {
    windows_->SwitchTook(change_ns - change_told_ns_);
    change_told_ns_ = change_ns;
  }
  LookForCutOff(now_ns);
  const std::lock_guard<std::mutex> lock(planning_);
  TakeSwitchesLocked();
  windows_->Look(now_ns, SafePoints::passed(), CostNs());
  window_steps_ = windows_->length();
  SafePoints::SetDue(tier_due_ ? SafePoints::passed() : windows_->due());
}

// Whether what still ran when a window ended was recorded: it is on the one CUPTI that was tried, scripted. If it is
// not, the device would look idle in a window's last steps. A window is left out if records of any kind were lost since
// it began: why its last ones are missing is known.
void DeviceFeed::LookForCutOff(int64_t now_ns) {
  for (; !ended_.empty() && ended_.front().to_ns < now_ns - kLongestHoldNs; ended_.pop_front()) {
    if (lost_ns_ >= ended_.front().from_ns) continue;
    const int64_t unseen = launches_.UnseenSince(ended_.front().from_ns, ended_.front().to_ns);
    cut_off_ += unseen > 0;
    if (cut_off_ == kWindowsCutOff && unseen > 0) tier_due_ = true;
  }
}

void DeviceFeed::EndWindows() {
  writer_->AddNote(
      "CUPTI makes no record of kernels that run on when a window of traced steps ends: in the last steps of the first "
      "windows the GPU was busier than is told. All steps are traced from here on");
  const int64_t now_ns = NowNs();
  if (!work_traced_) windows_on_ns_.push_back(now_ns);
  tracer_->SetTier(CudaTier::kFull);
  windows_.reset();
  WriteTier();
}

// The first operation that was launched in a window: what its device does from here on was so too, in order of its
// streams. Work that another stream still has from before is not seen.
void DeviceFeed::EndUntraced(const DeviceOp& op) {
  int64_t launched_ns = 0;
  if (op.correlation == 0 || !launches_.Find(op.correlation, &launched_ns)) return;
  const auto after = std::upper_bound(windows_on_ns_.begin(), windows_on_ns_.end(), launched_ns);
  if (after == windows_on_ns_.begin()) return;
  const int64_t on_ns = *std::prev(after);
  int64_t& known = traced_again_[op.device];
  if (known >= on_ns) return;
  known = on_ns;
  timeline_->EndUntraced(op.device, on_ns, op.start_ns);
}

void DeviceFeed::SawStep(uint32_t flags, int64_t start_ns, bool traced) {
  if (!windows_) return;
  const auto kind = [&](StepFlag flag, uint32_t bit) { return (flags & flag) != 0 ? bit : 0u; };
  windows_->SawStep(kind(kHasLoaderStart, 1) | kind(kHasValidation, 2) | kind(kHasCheckpoint, 4), start_ns, traced);
}

void DeviceFeed::ChangeTier() {
  const std::lock_guard<std::mutex> lock(planning_);
  TakeSwitchesLocked();
  tier_due_ = false;
  SafePoints::SetDue(SafePoints::kNever);
  if (windows_ && cut_off_ >= kWindowsCutOff) {
    EndWindows();
    return;
  }
  const CudaTier tier = windows_ ? CudaTier::kOff : control_.tier();
  gaps_.push_back({drained_ns_, NowNs()});  // no step is of two tiers unmarked
  writer_->AddNote(absl::StrCat("tracing of the GPU goes on as ", CudaTierName(tier), ": ",
                                tier == CudaTier::kFull ? "it cost little for half a minute" : WhyLess()));
  tracer_->SetTier(tier);
  if (tier == CudaTier::kOff) tracer_->Stop(&batch_);
  WriteTier();
}

void DeviceFeed::EverySecond(int64_t now_ns) {
  if (tracer_ == nullptr) return;
  const int64_t cost_ns = CostNs() + drain_cpu_ns_;
  if (now_ns > judged_ns_ && tracer_->running() && !tier_due_) {
    const auto passed_ns = static_cast<double>(now_ns - judged_ns_);
    const double share = static_cast<double>(cost_ns - judged_cost_ns_) / passed_ns;
    const double beside = static_cast<double>(drain_cpu_ns_ - judged_drain_ns_) / passed_ns;  // on our own thread
    tier_due_ =
        windows_ ? windows_->lean_rate() > budget_ : control_.Judge(share / budget_, share - beside > kBlindShare);
    if (tier_due_) SafePoints::SetDue(SafePoints::passed());
  }
  judged_ns_ = now_ns;
  judged_cost_ns_ = cost_ns;
  judged_drain_ns_ = drain_cpu_ns_;

  if (timeline_->refused_ops() > 0 && !refused_noted_) {
    refused_noted_ = true;
    writer_->AddNote(Timeline::RefusedOpsNote());
  }
  const CudaTracer::Losses losses = tracer_->losses();
  writer_->SetDropped("device_ops", timeline_->refused_ops());
  writer_->SetOverhead("cupti", CostNs());
  writer_->SetDropped("cupti_refused", losses.refused);
  writer_->SetDropped("cupti_dropped", losses.dropped);
  writer_->SetDropped("cupti_zero_time", losses.zero_time);
  writer_->SetDropped("cupti_bad", losses.bad);
  writer_->SetDropped("cupti_clock_jumps", losses.clock_jumps);
  writer_->SetDropped("cupti_late", late_);
  writer_->SetDropped("cupti_unmatched", unmatched_);
  writer_->SetDropped("cupti_before_launch", before_launch_);
  writer_->SetDropped("cupti_not_held", unheld_);
  writer_->SetDropped("cupti_without_thread", folder_.without_thread());
}

}  // namespace trainperf
