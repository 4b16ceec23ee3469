#include "trainperf/timeline/idle_blame.h"

#include <algorithm>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr int64_t kWorthSplittingNs = 100'000;

// After the host has waited for the device, what it needs to give it work again is that wait's fault. A stall with a
// name of its own would have been one without the wait as well.
Cause AfterSync(Cause cause) {
  switch (cause) {
    case Cause::kLaunch:
    case Cause::kPython:
    case Cause::kCompute:
    case Cause::kUnknown:
      return Cause::kGpuWait;
    default:
      return cause;
  }
}

int64_t Part(int64_t ns, uint16_t share) {
  return static_cast<int64_t>(static_cast<double>(ns) * share / SegmentList::kWhole);
}

}  // namespace

void IdleBlame::AddEntry(const SegmentList::Entry& entry, int64_t ns, Sums* sums) {
  const size_t phase = static_cast<size_t>(PhaseOf(entry.row));
  sums->phases |= 1u << phase;
  if (entry.mechanism != Mechanism::kUnknown) {
    sums->told[phase][static_cast<size_t>(entry.mechanism)] += ns;
    return;
  }
  Measures& rest = sums->rest[phase];
  const int64_t unknown_ns = Part(ns, entry.unmeasured);
  const int64_t blocked_ns = Part(ns, entry.blocked);
  const int64_t delay_ns = Part(ns, entry.delayed);
  rest.unknown += unknown_ns;
  rest.blocked += blocked_ns;
  rest.delay += delay_ns;
  const int64_t left_ns = ns - unknown_ns - blocked_ns - delay_ns;
  (entry.known() ? rest.cpu : rest.unknown) += left_ns;
}

void IdleBlame::Sweep(const IdleGap& gap, Sums* sums, uint32_t device, DetailTable* details) {
  const auto& log = step_.host_log.entries();
  while (at_ > 0 && at_ <= log.size() && log[at_ - 1].end_ns > gap.start_ns) --at_;
  while (at_ < log.size() && log[at_].end_ns <= gap.start_ns) ++at_;
  const int64_t length_ns = std::max<int64_t>(gap.end_ns - gap.start_ns, 1);
  const double scale = static_cast<double>(gap.ns) / static_cast<double>(length_ns);
  int64_t left_ns = gap.ns;
  for (size_t i = at_; i < log.size() && log[i].start_ns < gap.end_ns; ++i) {
    const SegmentList::Entry& entry = log[i];
    int64_t ns = std::min(entry.end_ns, gap.end_ns) - std::max(entry.start_ns, gap.start_ns);
    if (gap.ns != length_ns) ns = static_cast<int64_t>(static_cast<double>(ns) * scale);
    ns = std::clamp<int64_t>(ns, 0, left_ns);
    if (ns == 0) continue;
    left_ns -= ns;
    AddEntry(entry, ns, sums);
    if (entry.mechanism == Mechanism::kGilWait) {
      details->Add({DetailKind::kIdleGilWait, entry.row, SampleState::kGilWait, entry.thread, entry.stack,
                    static_cast<int32_t>(device)},
                   ns, 1);
    }
  }
  if (left_ns == 0) return;
  sums->phases |= 1u << static_cast<size_t>(Phase::kOther);
  sums->rest[static_cast<size_t>(Phase::kOther)].unknown += left_ns;
}

void IdleBlame::Finish(Sums* sums, bool after_sync, int64_t (&idle_ns)[kCauseCount]) const {
  for (; sums->phases != 0; sums->phases &= sums->phases - 1) {
    const size_t p = static_cast<size_t>(__builtin_ctz(sums->phases));
    Measures& rest = sums->rest[p];
    // The step's own run delay is settled by now: the same part of it was throttling here.
    const Measures& whole = step_.rows[p];
    const int64_t off_ns = whole.throttled + whole.descheduled + whole.delay;
    if (rest.delay > 0 && off_ns > 0) {
      rest.throttled = static_cast<int64_t>(static_cast<double>(rest.delay) * static_cast<double>(whole.throttled) /
                                            static_cast<double>(off_ns));
      rest.delay -= rest.throttled;
    }
    int64_t ns[kMechanismCount] = {};
    split_.Split(static_cast<Phase>(p), rest, ns);
    for (size_t m = 0; m < kMechanismCount; ++m) {
      const Cause cause = CauseOf(static_cast<Phase>(p), static_cast<Mechanism>(m), true);
      idle_ns[static_cast<size_t>(after_sync ? AfterSync(cause) : cause)] += ns[m] + sums->told[p][m];
    }
    rest = {};
    sums->told[p] = {};
  }
}

void IdleBlame::Explain(const std::vector<IdleGap>& gaps, uint32_t device, int64_t (&idle_ns)[kCauseCount],
                        DetailTable* details) {
  at_ = 0;
  for (const IdleGap& gap : gaps) Sweep(gap, gap.after_sync ? &synced_ : &plain_, device, details);
  Finish(&plain_, false, idle_ns);
  Finish(&synced_, true, idle_ns);
}

Cause IdleBlame::CauseOfEntry(const SegmentList::Entry& entry, bool after_sync) {
  if (entry.mechanism != Mechanism::kUnknown) {
    const Cause cause = CauseOf(PhaseOf(entry.row), entry.mechanism, true);
    return after_sync ? AfterSync(cause) : cause;
  }
  int64_t ns[kCauseCount] = {};
  AddEntry(entry, 1'000'000, &plain_);
  Finish(&plain_, after_sync, ns);
  return static_cast<Cause>(std::max_element(ns, ns + kCauseCount) - ns);
}

void IdleBlame::Name(std::vector<DeviceSegment>* segments) {
  const auto& log = step_.host_log.entries();
  std::vector<DeviceSegment> named;
  named.reserve(segments->size());
  const auto put = [&named](const DeviceSegment& s) {
    if (s.end_ns <= s.start_ns) return;
    if (!named.empty() && named.back().what == DeviceActivity::kIdle && s.what == DeviceActivity::kIdle &&
        named.back().cause == s.cause) {
      named.back().end_ns = s.end_ns;
    } else {
      named.push_back(s);
    }
  };
  DetailTable details;
  at_ = 0;
  for (DeviceSegment segment : *segments) {
    const uint32_t note = segment.name;
    if (segment.what != DeviceActivity::kIdle || note == 0) {
      put(segment);
      continue;
    }
    segment.name = 0;
    const bool after_sync = note == DeviceSums::kToExplainAfterSync;
    int64_t ns[kCauseCount] = {};
    Sweep({segment.start_ns, segment.end_ns, segment.end_ns - segment.start_ns, after_sync}, &plain_, 0, &details);
    Finish(&plain_, after_sync, ns);
    segment.cause = static_cast<Cause>(std::max_element(ns, ns + kCauseCount) - ns);
    if (segment.end_ns - segment.start_ns < kWorthSplittingNs) {
      put(segment);
      continue;
    }
    int64_t from_ns = segment.start_ns;
    for (size_t i = at_; i < log.size() && log[i].start_ns < segment.end_ns; ++i) {
      const int64_t start_ns = std::max(log[i].start_ns, from_ns);
      const int64_t end_ns = std::min(log[i].end_ns, segment.end_ns);
      if (end_ns <= start_ns) continue;
      put({from_ns, start_ns, DeviceActivity::kIdle, Cause::kUnknown, 0});
      put({start_ns, end_ns, DeviceActivity::kIdle, CauseOfEntry(log[i], after_sync), 0});
      from_ns = end_ns;
    }
    put({from_ns, segment.end_ns, DeviceActivity::kIdle, Cause::kUnknown, 0});
  }
  segments->swap(named);
}

}  // namespace trainperf
