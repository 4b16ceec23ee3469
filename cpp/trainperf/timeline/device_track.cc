#include "trainperf/timeline/device_track.h"

#include <algorithm>
#include <utility>

#include "trainperf/timeline/kernel_names.h"

namespace trainperf {
namespace {

bool StartsBefore(const PendingOp& a, const PendingOp& b) { return a.op.start_ns < b.op.start_ns; }

constexpr int kBinsAnOctave = 8;

size_t LeadBin(int64_t ns) {
  const auto value = static_cast<uint64_t>(ns);
  if (value < kBinsAnOctave) return static_cast<size_t>(value);
  const int octave = 63 - __builtin_clzll(value);
  return static_cast<size_t>((octave - 2) * kBinsAnOctave) + ((value >> (octave - 3)) & (kBinsAnOctave - 1));
}

int64_t LeadOfBin(size_t bin) {
  if (bin < kBinsAnOctave) return static_cast<int64_t>(bin);
  const int octave = static_cast<int>(bin / kBinsAnOctave) + 2;
  return static_cast<int64_t>((kBinsAnOctave + bin % kBinsAnOctave) << (octave - 3));
}

}  // namespace

void DeviceTrack::Add(const PendingOp& op) { pending_.push_back(op); }

void DeviceTrack::Join(uint64_t correlation, const Launch& launch) {
  bool first = true;
  for (size_t i = pending_.size(); i-- > 0;) {
    PendingOp& pending = pending_[i];
    if (pending.op.correlation != correlation) continue;
    pending.launch_start_ns = launch.start_ns;
    pending.launch_end_ns = launch.end_ns;
    pending.sync_end_ns = launch.sync_end_ns;
    pending.step_sync_end_ns = launch.step_sync_end_ns;
    pending.thread = launch.thread;
    pending.graph = launch.graph;
    pending.first_of_launch = first;
    first = false;
    if (!launch.graph) return;
  }
}

void DeviceTrack::Sort() {
  const auto tail = pending_.begin() + static_cast<ptrdiff_t>(sorted_);
  std::stable_sort(tail, pending_.end(), StartsBefore);
  if (sorted_ > 0 && tail != pending_.end() && StartsBefore(*tail, *(tail - 1))) {
    std::inplace_merge(pending_.begin(), tail, pending_.end(), StartsBefore);
  }
  sorted_ = pending_.size();
}

int64_t DeviceTrack::MedianStart() {
  Sort();
  return pending_[pending_.size() / 2].op.start_ns;
}

int64_t DeviceTrack::Settle(int64_t time_ns, int64_t idle_until_ns, const Context& context) {
  Sort();
  cell_ = 0;
  size_t done = 0;
  for (; done < pending_.size() && pending_[done].op.start_ns < time_ns; ++done) Process(pending_[done], context);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(done));
  sorted_ = pending_.size();
  CloseCopies(time_ns, context);
  if (idle_since_ns_ < time_ns) {
    const int64_t until_ns = std::min(time_ns, idle_until_ns);
    if (until_ns > std::max(settled_ns_, idle_since_ns_)) Idle(until_ns, nullptr, context);
    settled_ns_ = std::max({settled_ns_, idle_since_ns_, until_ns});
  } else {
    settled_ns_ = std::max(settled_ns_, time_ns);
  }
  return settled_ns_;
}

size_t DeviceTrack::CellAt(int64_t time_ns, const Context& context) {
  const DeviceCells& cells = *context.cells;
  const auto holds = [&](size_t i) {
    return cells[i]->start_ns <= time_ns && (i + 1 == cells.size() || time_ns < cells[i + 1]->start_ns);
  };
  if (cell_ < cells.size() && holds(cell_)) return cell_;
  if (cell_ + 1 < cells.size() && holds(cell_ + 1)) return ++cell_;
  const auto after =
      std::upper_bound(cells.begin(), cells.end(), time_ns,
                       [](int64_t ns, const std::unique_ptr<DeviceCell>& cell) { return ns < cell->start_ns; });
  return cell_ = after == cells.begin() ? 0 : static_cast<size_t>(after - cells.begin()) - 1;
}

DeviceSums& DeviceTrack::SumsOf(DeviceCell& cell) const {
  while (cell.devices.size() <= position_) cell.devices.emplace_back();
  DeviceSums& sums = cell.devices[position_];
  sums.used = true;
  return sums;
}

template <typename AddTo>
void DeviceTrack::ForEachCell(int64_t start_ns, int64_t end_ns, const Context& context, AddTo&& add) {
  const DeviceCells& cells = *context.cells;
  if (cells.empty()) return;
  start_ns = std::max(start_ns, cells.front()->start_ns);
  if (end_ns <= start_ns) return;
  for (size_t i = CellAt(start_ns, context); start_ns < end_ns; ++i) {
    const int64_t until_ns = i + 1 < cells.size() ? std::min(end_ns, cells[i + 1]->start_ns) : end_ns;
    if (until_ns > start_ns) add(SumsOf(*cells[i]), start_ns, until_ns);
    start_ns = std::max(start_ns, until_ns);
  }
}

void DeviceTrack::Grow(Union which, int64_t start_ns, int64_t end_ns, const Context& context) {
  start_ns = std::max(start_ns, until_[which]);
  if (end_ns <= start_ns) return;
  until_[which] = end_ns;
  static constexpr int64_t DeviceSums::*kSums[kUnionCount] = {&DeviceSums::busy_ns,
                                                              &DeviceSums::kernel_ns,
                                                              &DeviceSums::compute_ns,
                                                              &DeviceSums::collective_ns,
                                                              &DeviceSums::compute_or_collective_ns,
                                                              &DeviceSums::copy_ns,
                                                              &DeviceSums::kernel_or_copy_ns};
  ForEachCell(start_ns, end_ns, context,
              [&](DeviceSums& sums, int64_t from_ns, int64_t to_ns) { sums.*kSums[which] += to_ns - from_ns; });
}

bool DeviceTrack::IsCollective(uint32_t name, const Context& context) {
  if (context.names == nullptr || name == 0) return false;
  if (name >= collective_.size()) collective_.resize(name + 256);
  uint8_t& known = collective_[name];
  if (known == 0) known = ClassifyKernel(context.names->name(name)).kind == KernelKind::kCollective ? 2 : 1;
  return known == 2;
}

void DeviceTrack::Process(const PendingOp& pending, const Context& context) {
  const DeviceOp& op = pending.op;
  CloseCopies(op.start_ns, context);
  if (context.cells->empty()) return;
  // What was told to be idle before it came stays so.
  const int64_t start_ns = std::max(op.start_ns, settled_ns_);
  const int64_t end_ns = std::max(op.end_ns, start_ns);
  DeviceCells& cells = *context.cells;
  DeviceCell& cell = *cells[CellAt(start_ns, context)];
  DeviceSums& sums = SumsOf(cell);
  if (op.start_ns < settled_ns_ && std::max(op.start_ns, idle_since_ns_) < std::min(op.end_ns, settled_ns_)) {
    sums.incomplete = true;
    SumsOf(*cells[CellAt(op.start_ns, context)]).incomplete = true;
  }
  // The host's part begins with the recording: what was asked for before it is no loss.
  if (op.correlation != 0 && pending.launch_start_ns < 0 && !context.launches->empty() &&
      !context.launches->IsBefore(op.correlation)) {
    sums.incomplete = true;
  }
  if (start_ns > idle_since_ns_) Idle(start_ns, &pending, context);

  const bool kernel = op.kind == DeviceOpKind::kKernel;
  const bool collective = kernel && IsCollective(op.name, context);
  if (end_ns > std::max(start_ns, until_[kAny])) {
    const DeviceActivity what = collective                         ? DeviceActivity::kCollective
                                : kernel                           ? DeviceActivity::kKernel
                                : op.kind == DeviceOpKind::kMemcpy ? DeviceActivity::kCopy
                                                                   : DeviceActivity::kMemset;
    ForEachCell(std::max(start_ns, until_[kAny]), end_ns, context, [&](DeviceSums& to, int64_t from_ns, int64_t to_ns) {
      to.AddSegment({from_ns, to_ns, what, Cause::kUnknown, kernel ? op.name : 0}, max_segments_);
    });
  }
  Grow(kAny, start_ns, end_ns, context);
  if (kernel) {
    for (ActiveCopy& copy : copies_) {
      const int64_t from_ns = std::max(start_ns, until_[kKernel]);
      copy.sum.exposed_ns -= std::max<int64_t>(std::min(end_ns, copy.end_ns) - from_ns, 0);
    }
    Grow(kKernel, start_ns, end_ns, context);
    Grow(kKernelOrCopy, start_ns, end_ns, context);
    Grow(collective ? kCollective : kCompute, start_ns, end_ns, context);
    Grow(kComputeOrCollective, start_ns, end_ns, context);
    CountKernel(pending, &sums, cell.serial);
  } else if (op.kind == DeviceOpKind::kMemcpy) {
    const int64_t ns = end_ns - start_ns;
    const int64_t bytes = std::max<int64_t>(op.bytes, 0);
    const int64_t hidden_ns = std::clamp<int64_t>(std::min(end_ns, until_[kKernel]) - start_ns, 0, ns);
    copies_.push_back({end_ns,
                       {op.direction, op.from, op.to, 1, bytes, ns, ns - hidden_ns,
                        op.bytes >= 0 && op.bytes <= kSmallCopyBytes ? 1 : 0}});
    ++sums.copies;
    Grow(kCopy, start_ns, end_ns, context);
    Grow(kKernelOrCopy, start_ns, end_ns, context);
  }
  if (pending.first_of_launch) CountQueue(pending, start_ns, context);
  idle_since_ns_ = std::max(idle_since_ns_, end_ns);
}

// The device was idle up to `until_ns`, where `next` starts; nullptr: what ends it has not come.
void DeviceTrack::Idle(int64_t until_ns, const PendingOp* next, const Context& context) {
  const int64_t from_ns = std::max(settled_ns_, idle_since_ns_);
  if (until_ns <= from_ns) return;
  const auto segment = [](int64_t start_ns, int64_t end_ns, Cause cause, uint32_t note) {
    return DeviceSegment{start_ns, end_ns, DeviceActivity::kIdle, cause, note};
  };
  const auto unseen = [&](int64_t start_ns, int64_t end_ns) {
    ForEachCell(start_ns, end_ns, context, [&](DeviceSums& sums, int64_t a_ns, int64_t b_ns) {
      sums.waiting_ns += b_ns - a_ns;
      sums.AddSegment(segment(a_ns, b_ns, Cause::kUnknown, 0), max_segments_);
    });
  };
  const auto launching = [&](int64_t start_ns, int64_t end_ns, int64_t DeviceSums::*sum) {
    ForEachCell(start_ns, end_ns, context, [&](DeviceSums& sums, int64_t a_ns, int64_t b_ns) {
      sums.*sum += b_ns - a_ns;
      sums.AddSegment(segment(a_ns, b_ns, Cause::kLaunch, 0), max_segments_);
    });
  };
  int64_t host_until_ns = until_ns;
  IdleGap gap{};
  if (next == nullptr) {
    if (context.launches->empty() || context.launches->HasQueued()) return unseen(from_ns, until_ns);
  } else {
    if (next->launch_start_ns < 0) return unseen(from_ns, until_ns);
    if (next->launch_start_ns < idle_since_ns_) {  // it was queued
      if (until_ns - idle_since_ns_ < kBetweenNs) return launching(from_ns, until_ns, &DeviceSums::between_ns);
      return unseen(from_ns, until_ns);
    }
    host_until_ns = std::clamp(next->launch_end_ns, from_ns, until_ns);
    const auto waited = [&](int64_t end_ns) { return end_ns > 0 && end_ns >= idle_since_ns_ - kSyncSlackNs; };
    gap.after_sync = waited(next->sync_end_ns);
    gap.after_step_sync = waited(next->step_sync_end_ns);
    if (next->thread != context.step_thread) gap.launcher = next->thread;
    ++SumsOf(*(*context.cells)[CellAt(until_ns, context)]).starved_gaps;
    if (next->thread == 0) {
      unseen(from_ns, host_until_ns);
      host_until_ns = from_ns;
    }
  }
  ForEachCell(from_ns, host_until_ns, context, [&](DeviceSums& sums, int64_t a_ns, int64_t b_ns) {
    gap.start_ns = a_ns;
    gap.end_ns = b_ns;
    gap.ns = b_ns - a_ns;
    sums.AddGap(gap);
    sums.AddSegment(segment(a_ns, b_ns, Cause::kUnknown, gap.note()), max_segments_);
  });
  const int64_t rest_from_ns = next != nullptr ? std::clamp(next->launch_end_ns, from_ns, until_ns) : until_ns;
  if (until_ns - rest_from_ns <= kLatencyNs) {
    launching(rest_from_ns, until_ns, &DeviceSums::latency_ns);
  } else {
    unseen(rest_from_ns, until_ns);
  }
}

void DeviceTrack::CountKernel(const PendingOp& pending, DeviceSums* sums, uint64_t serial) {
  const DeviceOp& op = pending.op;
  const int64_t ns = op.end_ns - op.start_ns;
  const bool tiny = ns < kTinyKernelNs || (pending.launch_start_ns >= 0 && !pending.graph &&
                                           ns < pending.launch_end_ns - pending.launch_start_ns);
  ++sums->kernels;
  sums->launches += pending.first_of_launch ? 1 : 0;
  sums->tiny_kernels += tiny ? 1 : 0;
  if (sums->first_kernel_ns < 0) sums->first_kernel_ns = std::max(op.start_ns, settled_ns_);
  if (op.name >= slots_.size()) slots_.resize(op.name + 256);
  Slot& slot = slots_[op.name];
  if (slot.serial != serial || slot.index >= sums->kernel_sums.size() ||
      sums->kernel_sums[slot.index].name != op.name) {
    slot = {serial, static_cast<uint32_t>(sums->kernel_sums.size())};
    sums->kernel_sums.push_back({op.name, 0, 0, 0, 0});
  }
  KernelSum& sum = sums->kernel_sums[slot.index];
  ++sum.count;
  sum.ns += ns;
  sum.max_ns = std::max(sum.max_ns, ns);
  sum.tiny += tiny ? 1 : 0;
  if (pending.first_of_launch && !pending.graph) {
    ++leads_[std::min(LeadBin(std::max<int64_t>(op.start_ns - pending.launch_end_ns, 0)), leads_.size() - 1)];
    ++lead_count_;
  }
}

// It was launched, but not yet running, at the end of each step in between.
void DeviceTrack::CountQueue(const PendingOp& pending, int64_t start_ns, const Context& context) {
  DeviceCells& cells = *context.cells;
  const size_t here = CellAt(start_ns, context);
  for (size_t i = here; i > 0 && cells[i]->start_ns > pending.launch_start_ns; --i) {
    ++SumsOf(*cells[i - 1]).queued_at_end;
  }
  for (size_t i = context.closed->size(); i-- > 0 && (*context.closed)[i] > pending.launch_start_ns;) {
    ++SumsOf(*cells[here]).queued_before;
  }
}

void DeviceTrack::CloseCopies(int64_t until_ns, const Context& context) {
  for (size_t i = copies_.size(); i-- > 0;) {
    if (copies_[i].end_ns > until_ns) continue;
    ForEachCell(copies_[i].end_ns, copies_[i].end_ns + 1, context,
                [&](DeviceSums& sums, int64_t, int64_t) { sums.AddCopy(copies_[i].sum); });
    copies_[i] = copies_.back();
    copies_.pop_back();
  }
}

int64_t DeviceTrack::lead_ns_median() const {
  int64_t seen = 0;
  for (size_t bin = 0; bin < leads_.size(); ++bin) {
    seen += leads_[bin];
    if (seen > 0 && 2 * seen >= lead_count_) return std::max<int64_t>(LeadOfBin(bin), 1);
  }
  return 0;
}

}  // namespace trainperf
