#include "trainperf/timeline/device_lane.h"

#include <algorithm>
#include <utility>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr int64_t kMinHoldNs = 20'000'000;
constexpr int64_t kFirstHoldNs = 500'000'000;  // while it is not known how long operations take
constexpr int64_t kEnoughOps = 256;
constexpr size_t kMaxSyncThreads = 1024;
constexpr int64_t kMaxCallNs = int64_t{1} << 50;  // no sum overflows

bool IsRuntimeCall(HostCall call) { return call != HostCall::kCpuOp && call != HostCall::kPython; }

bool IsWork(HostCall call) {
  return call == HostCall::kLaunchKernel || call == HostCall::kLaunchGraph || call == HostCall::kMemcpy ||
         call == HostCall::kMemset;
}

// Beyond the most that are kept, the rest is of no thread.
CallSum* SumOf(ThreadId thread, HostCall call, std::vector<CallSum>* sums) {
  const auto find = [&](ThreadId of) {
    return std::find_if(sums->begin(), sums->end(), [&](const CallSum& s) { return s.thread == of && s.call == call; });
  };
  auto sum = find(thread);
  if (sum == sums->end() && sums->size() >= kMaxSyncThreads) {
    thread = 0;
    sum = find(thread);
  }
  if (sum == sums->end()) sum = sums->insert(sums->end(), {thread, call, 0, 0, 0, 0});
  return &*sum;
}

}  // namespace

// ---- What comes

int64_t DeviceLane::OnCall(const Event& call) {
  if (call.what >= kHostCallCount) return 0;
  const HostCall what = static_cast<HostCall>(call.what);
  if (!IsRuntimeCall(what)) return 0;
  active_ = true;
  const auto waits_until = [&](int64_t end_ns) {
    if (sync_ends_.size() < kMaxSyncThreads || sync_ends_.contains(call.thread)) sync_ends_[call.thread] = end_ns;
  };
  if (MechanismOf(what) == Mechanism::kGpuWait) {
    if (what != HostCall::kQueueFull) waits_until(call.end_ns);
    return 0;
  }
  if (!IsWork(what)) return 0;
  feeds_ = true;
  const uint64_t correlation = static_cast<uint64_t>(call.value);
  if (correlation == 0 || (call.flags & kCallFailed) != 0) return 0;
  Launch launch;
  launch.correlation = correlation;
  launch.start_ns = call.start_ns;
  launch.end_ns = call.end_ns;
  launch.thread = call.thread;
  launch.graph = what == HostCall::kLaunchGraph;
  launch.kernel = launch.graph || what == HostCall::kLaunchKernel;
  const auto synced_ns = [&](ThreadId thread) {
    const auto sync = sync_ends_.find(thread);
    return sync == sync_ends_.end() ? 0 : sync->second;
  };
  launch.sync_end_ns = synced_ns(call.thread);
  launch.step_sync_end_ns = synced_ns(step_thread_);
  int64_t waited_until_ns = 0;
  if (!unjoined_.empty()) {
    const auto op = unjoined_.find(correlation);
    if (op != unjoined_.end()) {
      launch.begun = true;
      tracks_[op->second.first]->Join(correlation, launch);
      // A copy into pageable memory returns when it is done: what comes before it is the device's earlier work.
      const DeviceOp& copy = op->second.second;
      if (what == HostCall::kMemcpy && copy.direction == CopyDirection::kDeviceToHost &&
          (copy.to == MemoryKind::kPageable || copy.to == MemoryKind::kUnknown) && copy.end_ns <= call.end_ns &&
          copy.start_ns - call.start_ns > DeviceTrack::kSyncSlackNs) {
        waited_until_ns = copy.start_ns;
        waits_until(call.end_ns);
      }
      unjoined_.erase(op);
    }
  }
  launches_.Add(launch);
  return waited_until_ns;
}

void DeviceLane::CountCall(const Event& call) {
  DeviceCell* const step = OpenStep();
  if (!active_ || step == nullptr) return;
  const HostCall what = static_cast<HostCall>(call.what);
  const int64_t ns = std::min(call.end_ns - call.start_ns, kMaxCallNs);
  CallSum* const sum = SumOf(call.thread, what, &step->calls);
  ++sum->count;
  sum->failed += (call.flags & kCallFailed) != 0 ? 1 : 0;
  sum->ns += ns;
  sum->max_ns = std::max(sum->max_ns, ns);
}

DeviceTrack* DeviceLane::TrackOf(uint32_t device) {
  for (const auto& track : tracks_) {
    if (track->device() == device) return track.get();
  }
  if (tracks_.size() >= size_t{kMaxDevices}) return nullptr;
  tracks_.push_back(std::make_unique<DeviceTrack>(device, tracks_.size(), max_segments_));
  untraced_.emplace_back();
  if (untraced_since_ns_ != kNotYet) untraced_.back().push_back({untraced_since_ns_, kNotYet});
  return tracks_.back().get();
}

void DeviceLane::OnOp(const DeviceOp& op) {
  active_ = feeds_ = true;
  DeviceTrack* const track = TrackOf(op.device);
  if (track == nullptr) {
    ++refused_ops_;
    return;
  }
  ++ops_;
  longest_ns_ = std::max(longest_ns_, std::min(op.end_ns - op.start_ns, kMaxHoldNs));
  PendingOp pending;
  pending.op = op;
  if (Launch* const launch = launches_.Find(op.correlation)) {
    pending.launch_start_ns = launch->start_ns;
    pending.launch_end_ns = launch->end_ns;
    pending.sync_end_ns = launch->sync_end_ns;
    pending.step_sync_end_ns = launch->step_sync_end_ns;
    pending.thread = launch->thread;
    pending.graph = launch->graph;
    pending.first_of_launch = !launch->begun;
    launch->begun = true;
  } else if (op.correlation != 0) {
    if (unjoined_.size() >= kMaxUnjoined) unjoined_.clear();
    unjoined_.try_emplace(op.correlation, track->position(), op);
  }
  track->Add(pending);
}

void DeviceLane::MarkIncomplete(uint32_t device) {
  DeviceTrack* const track = TrackOf(device);
  DeviceCell* const step = OpenStep();
  if (track == nullptr || step == nullptr) return;
  std::vector<DeviceSums>& devices = step->devices;
  while (devices.size() <= track->position()) devices.emplace_back();
  devices[track->position()].used = devices[track->position()].incomplete = true;
}

void DeviceLane::BeginUntraced(int64_t at_ns) {
  untraced_since_ns_ = at_ns;
  for (auto& of_track : untraced_) {
    // One of many that go on, as of a device that is not used any more, is a part of the one before.
    if (of_track.size() < kMostUntraced || of_track.back().to_ns != kNotYet) of_track.push_back({at_ns, kNotYet});
  }
}

void DeviceLane::EndUntraced(uint32_t device, int64_t on_ns, int64_t at_ns) {
  DeviceTrack* const track = TrackOf(device);
  if (track == nullptr) return;
  for (Untraced& part : untraced_[track->position()]) {
    if (part.from_ns <= on_ns && part.to_ns == kNotYet) part.to_ns = at_ns;
  }
}

bool DeviceLane::IsUntraced(size_t track, const Piece& step) const {
  const auto& of_track = untraced_[track];
  return std::any_of(of_track.begin(), of_track.end(),
                     [&](const Untraced& part) { return part.from_ns < step.end_ns() && part.to_ns > step.start_ns; });
}

// ---- Cells

void DeviceLane::OpenCell(int64_t start_ns) {
  if (start_ns == behind_ns_) {  // by now a step's
    behind_ns_ = kNone;
    return;
  }
  size_t position = cells_.size();
  while (position > 0 && cells_[position - 1]->start_ns > start_ns) --position;
  if (position > 0 && cells_[position - 1]->start_ns == start_ns) {
    opened_.push_back(start_ns);
    return;
  }
  std::unique_ptr<DeviceCell> cell;
  if (spare_.empty()) {
    cell = std::make_unique<DeviceCell>();
  } else {
    cell = std::move(spare_.back());
    spare_.pop_back();
  }
  cell->start_ns = start_ns;
  cell->serial = next_serial_++;
  for (DeviceSums& sums : cell->devices) sums.Reset();
  cell->calls.clear();
  cells_.insert(cells_.begin() + static_cast<ptrdiff_t>(position), std::move(cell));
}

void DeviceLane::MergeCell(int64_t start_ns) {
  const auto again = std::find(opened_.rbegin(), opened_.rend(), start_ns);
  if (again != opened_.rend()) {
    opened_.erase(std::next(again).base());
    return;
  }
  size_t position = cells_.size();
  while (position > 0 && cells_[position - 1]->start_ns > start_ns) --position;
  if (position < 2 || cells_[position - 1]->start_ns != start_ns) return;
  Pour(*cells_[position - 1], cells_[position - 2].get());
  Store(std::move(cells_[position - 1]));
  cells_.erase(cells_.begin() + static_cast<ptrdiff_t>(position - 1));
}

void DeviceLane::Pour(DeviceCell& from, DeviceCell* into) const {
  for (size_t i = 0; i < from.devices.size(); ++i) {
    if (!from.devices[i].used) continue;
    while (into->devices.size() <= i) into->devices.emplace_back();
    into->devices[i].Append(from.devices[i], max_segments_);
  }
  for (const CallSum& more : from.calls) {
    CallSum* const known = SumOf(more.thread, more.call, &into->calls);
    known->count += more.count;
    known->failed += more.failed;
    known->ns += more.ns;
    known->max_ns = std::max(known->max_ns, more.max_ns);
  }
}

void DeviceLane::Store(std::unique_ptr<DeviceCell> cell) {
  size_t bytes = 0;
  for (const DeviceSums& sums : cell->devices) bytes += sums.memory();
  if (spare_.size() < kMaxSpare && bytes <= kMaxSpareBytes) spare_.push_back(std::move(cell));
}

void DeviceLane::OpenCellBehind(int64_t mark_ns) {
  if (mark_ns == behind_ns_) return;
  if (behind_ns_ != kNone) MergeCell(behind_ns_);
  behind_ns_ = kNone;
  if (cells_.empty() || mark_ns <= cells_.back()->start_ns) return;
  OpenCell(mark_ns);
  behind_ns_ = mark_ns;
}

DeviceCell* DeviceLane::OpenStep() {
  if (cells_.empty()) return nullptr;
  const bool behind = cells_.size() > 1 && cells_.back()->start_ns == behind_ns_;
  return cells_[cells_.size() - (behind ? 2 : 1)].get();
}

// ---- Settling

int64_t DeviceLane::hold_ns() const {
  if (ops_ < kEnoughOps) return std::max(kFirstHoldNs, std::min(2 * longest_ns_, kMaxHoldNs));
  return std::clamp(longest_ns_ + longest_ns_ / 4, kMinHoldNs, kMaxHoldNs);
}

void DeviceLane::Settle(int64_t progress_ns, int64_t limit_ns) {
  if (!active_) return;
  size_t pending = 0;
  for (const auto& track : tracks_) pending += track->pending();
  const bool too_many = pending > kMaxPending;
  const int64_t hold_ns = this->hold_ns();
  if (!too_many && progress_ns - last_settle_ns_ < std::max<int64_t>(hold_ns / 8, 1'000'000)) return;
  OpenCellBehind(limit_ns);
  if (too_many) {
    // The host has said nothing for long, or an operation takes for ever: the older half is taken as it is.
    int64_t until_ns = progress_ns;
    for (const auto& track : tracks_) {
      if (track->pending() > kMaxPending / (2 * tracks_.size())) until_ns = std::min(until_ns, track->MedianStart());
    }
    SettleTo(until_ns, until_ns);
    return;
  }
  last_settle_ns_ = progress_ns;
  SettleTo(std::min(progress_ns - hold_ns, limit_ns), progress_ns - kMaxHoldNs);
}

void DeviceLane::SettleAll(int64_t until_ns) { SettleTo(until_ns, until_ns); }

void DeviceLane::SettleTo(int64_t time_ns, int64_t idle_until_ns) {
  if (time_ns <= settled_ns_) return;
  const DeviceTrack::Context context = {&cells_, &launches_, &closed_, names_, step_thread_};
  int64_t settled_ns = time_ns;
  for (const auto& track : tracks_) {
    const auto& untraced = untraced_[track->position()];
    // Nothing comes to end its idle time.
    const bool blind = !untraced.empty() && untraced.back().to_ns == kNotYet && untraced.back().from_ns < time_ns;
    settled_ns = std::min(settled_ns, track->Settle(time_ns, blind ? time_ns : idle_until_ns, context));
  }
  settled_ns_ = std::max(settled_ns_, settled_ns);
}

// ---- Steps

void DeviceLane::Drop(int64_t until_ns) {
  while (cells_.size() > 1 && cells_[1]->start_ns <= until_ns) {
    Store(std::move(cells_.front()));
    cells_.pop_front();
  }
  while (!opened_.empty() && opened_.front() < until_ns) opened_.pop_front();
}

void DeviceLane::CloseStep(const Piece& step, const SampleSplit& split, StepRecord* record, DetailTable* details) {
  record->devices.clear();
  record->calls.clear();
  if (!active_) return;
  Drop(step.start_ns);
  size_t count = 0;
  while (count < cells_.size() && cells_[count]->start_ns < step.end_ns()) ++count;
  DeviceCell none;
  DeviceCell& cell = count > 0 && cells_.front()->start_ns >= step.start_ns ? *cells_.front() : none;
  for (size_t i = 1; i < count && &cell != &none; ++i) Pour(*cells_[i], &cell);
  record->calls = cell.calls;
  launcher_logs_.Drop(step.start_ns);
  bool launches_told = true;
  IdleBlame blame(step, split, launcher_logs_);
  for (const auto& track : tracks_) {
    while (cell.devices.size() <= track->position()) cell.devices.emplace_back();
    record->devices.emplace_back();
    if (IsUntraced(track->position(), step)) {
      record->devices.back().device = track->device();
      record->devices.back().untraced = true;
      record->devices.back().lead_ns_median = track->lead_ns_median();  // of the run so far: the last step's is kept
      launches_told = false;
    } else {
      MakeStep(*track, cell.devices[track->position()], step, &blame, &record->devices.back(), details);
    }
    auto& untraced = untraced_[track->position()];
    while (!untraced.empty() && untraced.front().to_ns <= step.end_ns()) untraced.pop_front();
  }
  if (!launches_told) {
    record->calls.erase(std::remove_if(record->calls.begin(), record->calls.end(),
                                       [](const CallSum& sum) { return IsLaunch(sum.call); }),
                        record->calls.end());
  }
  std::sort(record->devices.begin(), record->devices.end(),
            [](const DeviceStep& a, const DeviceStep& b) { return a.device < b.device; });
  // The first of them holds all, and goes when the next step closes.
  for (size_t i = 1; i < count; ++i) {
    Store(std::move(cells_[i]));
  }
  if (count > 1) cells_.erase(cells_.begin() + 1, cells_.begin() + static_cast<ptrdiff_t>(count));
  closed_.push_back(step.end_ns());
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void DeviceLane::MakeStep(const DeviceTrack& track, DeviceSums& sums, const Piece& step, IdleBlame* blame,
                          DeviceStep* out, DetailTable* details) const {
  *out = DeviceStep{};
  out->device = track.device();
  out->incomplete = sums.incomplete;
  out->busy_ns = sums.busy_ns;
  out->kernels = sums.kernels;
  out->kernel_ns = sums.kernel_ns;
  out->launches = sums.launches;
  out->copies = sums.copies;
  out->copy_ns = sums.copy_ns;
  out->exposed_copy_ns = sums.kernel_or_copy_ns - sums.kernel_ns;
  out->collective_ns = sums.collective_ns;
  out->exposed_collective_ns = sums.compute_or_collective_ns - sums.compute_ns;
  out->tiny_kernels = sums.tiny_kernels;
  out->starved_gaps = sums.starved_gaps;
  out->between_ns = sums.between_ns;
  out->first_kernel_ns = sums.first_kernel_ns < 0 ? -1 : std::max<int64_t>(sums.first_kernel_ns - step.start_ns, 0);
  out->queue_depth = sums.queued_at_end + sums.queued_before;
  out->lead_ns_median = track.lead_ns_median();
  blame->Explain(sums.gaps, track.device(), out->idle_ns, details);
  int64_t& launch_ns = out->idle_ns[static_cast<size_t>(Cause::kLaunch)];
  int64_t& unknown_ns = out->idle_ns[static_cast<size_t>(Cause::kUnknown)];
  launch_ns += sums.between_ns + sums.latency_ns;
  unknown_ns += sums.waiting_ns;
  // Cells follow the clock of the host's marks. Where that went wrong (events that came late), the step still adds up.
  int64_t over_ns = out->busy_ns - (step.end_ns() - step.start_ns);
  for (const int64_t ns : out->idle_ns) over_ns += ns;
  if (over_ns != 0) out->incomplete |= sums.used;
  if (over_ns < 0) unknown_ns -= over_ns;
  for (int64_t* const ns : {&unknown_ns, &launch_ns}) {
    const int64_t less = std::clamp<int64_t>(over_ns, 0, *ns);
    *ns -= less;
    over_ns -= less;
  }
  for (int64_t& ns : out->idle_ns) {
    const int64_t less = std::clamp<int64_t>(over_ns, 0, ns);
    ns -= less;
    over_ns -= less;
  }
  if (over_ns > 0) out->busy_ns -= over_ns;
  sums.MergeKernels();
  out->kernel_sums = sums.kernel_sums;
  out->copy_sums = sums.copy_sums;
  out->segments = sums.segments;
  blame->Name(&out->segments);
  DeviceSums bounded;
  bounded.segments.swap(out->segments);
  bounded.CompactSegments(max_segments_);
  out->segments.swap(bounded.segments);
}

}  // namespace trainperf
