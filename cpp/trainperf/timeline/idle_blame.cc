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

int64_t ShareOf(int64_t ns, uint16_t share) {
  return static_cast<int64_t>(static_cast<double>(ns) * share / SegmentList::kWhole);
}

}  // namespace

template <typename Visit>
void IdleBlame::WalkStep(int64_t start_ns, int64_t end_ns, Teller teller, Visit&& visit) {
  const auto& log = step_.host_log.entries();
  while (at_ > 0 && at_ <= log.size() && log[at_ - 1].end_ns > start_ns) --at_;
  while (at_ < log.size() && log[at_].end_ns <= start_ns) ++at_;
  for (size_t i = at_; i < log.size() && log[i].start_ns < end_ns; ++i) {
    const int64_t from_ns = std::max(log[i].start_ns, start_ns);
    const int64_t to_ns = std::min(log[i].end_ns, end_ns);
    if (to_ns > from_ns) visit(log[i], from_ns, to_ns, teller);
  }
}

// What is known of the gap, in order: what the thread did that ended it, and else what the step thread did, which could
// have launched meanwhile.
template <typename Visit>
void IdleBlame::Walk(const IdleGap& gap, Visit&& visit) {
  if (gap.launcher == 0) return WalkStep(gap.start_ns, gap.end_ns, Teller::kStepThread, visit);
  int64_t from_ns = gap.start_ns;
  if (const std::vector<SegmentList::Entry>* const own = launchers_.Of(gap.launcher)) {
    auto entry = std::upper_bound(own->begin(), own->end(), from_ns,
                                  [](int64_t ns, const SegmentList::Entry& e) { return ns < e.end_ns; });
    for (; entry != own->end() && entry->start_ns < gap.end_ns; ++entry) {
      const int64_t start_ns = std::max(entry->start_ns, from_ns);
      const int64_t end_ns = std::min(entry->end_ns, gap.end_ns);
      WalkStep(from_ns, start_ns, Teller::kOnlooker, visit);
      visit(*entry, start_ns, end_ns, Teller::kLauncher);
      from_ns = end_ns;
    }
  }
  WalkStep(from_ns, gap.end_ns, Teller::kOnlooker, visit);
}

void IdleBlame::AddEntry(const SegmentList::Entry& entry, int64_t ns, const IdleGap& gap, Teller teller) {
  Sums& sums = (teller == Teller::kOnlooker ? gap.after_step_sync : gap.after_sync) ? synced_ : plain_;
  const Phase phase = PhaseOf(entry.row);
  Measures& rest = sums.rest[static_cast<size_t>(phase)];
  sums.phases |= 1u << static_cast<size_t>(phase);
  if (entry.mechanism != Mechanism::kUnknown) {
    // Who waits for a device that idles waits for the other thread.
    if (teller == Teller::kOnlooker && CauseOf(phase, entry.mechanism, true) == Cause::kGpuWait) {
      AddUnknown(phase, ns);
    } else {
      sums.told[static_cast<size_t>(phase)][static_cast<size_t>(entry.mechanism)] += ns;
    }
    return;
  }
  const int64_t unknown_ns = ShareOf(ns, entry.unmeasured);
  const int64_t blocked_ns = ShareOf(ns, entry.blocked);
  const int64_t delay_ns = ShareOf(ns, entry.delayed);
  rest.unknown += unknown_ns;
  // So does who sleeps, unless it is known what for.
  if (teller == Teller::kOnlooker && CauseOf(phase, Mechanism::kBlocked, true) == Cause::kBlockedIo) {
    AddUnknown(phase, blocked_ns);
  } else {
    rest.blocked += blocked_ns;
  }
  rest.delay += delay_ns;
  const int64_t left_ns = ns - unknown_ns - blocked_ns - delay_ns;
  (entry.known() ? rest.cpu : rest.unknown) += left_ns;
}

// Whatever was before it.
void IdleBlame::AddUnknown(Phase phase, int64_t ns) {
  plain_.rest[static_cast<size_t>(phase)].unknown += ns;
  plain_.phases |= 1u << static_cast<size_t>(phase);
}

void IdleBlame::Sweep(const IdleGap& gap, uint32_t device, DetailTable* details) {
  const int64_t length_ns = std::max<int64_t>(gap.end_ns - gap.start_ns, 1);
  const double scale = static_cast<double>(gap.ns) / static_cast<double>(length_ns);
  int64_t left_ns = gap.ns;
  Walk(gap, [&](const SegmentList::Entry& entry, int64_t start_ns, int64_t end_ns, Teller teller) {
    int64_t ns = end_ns - start_ns;
    if (gap.ns != length_ns) ns = static_cast<int64_t>(static_cast<double>(ns) * scale);
    ns = std::clamp<int64_t>(ns, 0, left_ns);
    if (ns == 0) return;
    left_ns -= ns;
    AddEntry(entry, ns, gap, teller);
    if (entry.mechanism == Mechanism::kGilWait) {
      details->Add({DetailKind::kIdleGilWait, entry.row, SampleState::kGilWait, entry.thread, entry.stack,
                    static_cast<int32_t>(device)},
                   ns, 1);
    }
  });
  if (left_ns == 0) return;
  Sums& sums = gap.after_sync ? synced_ : plain_;
  sums.phases |= 1u << static_cast<size_t>(Phase::kOther);
  sums.rest[static_cast<size_t>(Phase::kOther)].unknown += left_ns;
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
  for (const IdleGap& gap : gaps) Sweep(gap, device, details);
  Finish(&plain_, false, idle_ns);
  Finish(&synced_, true, idle_ns);
}

Cause IdleBlame::Largest() {
  int64_t ns[kCauseCount] = {};
  Finish(&plain_, false, ns);
  Finish(&synced_, true, ns);
  return static_cast<Cause>(std::max_element(ns, ns + kCauseCount) - ns);
}

Cause IdleBlame::CauseOfEntry(const SegmentList::Entry& entry, int64_t ns, const IdleGap& gap, Teller teller) {
  if (entry.mechanism != Mechanism::kUnknown && teller != Teller::kOnlooker) {
    const Cause cause = CauseOf(PhaseOf(entry.row), entry.mechanism, true);
    return gap.after_sync ? AfterSync(cause) : cause;
  }
  AddEntry(entry, ns, gap, teller);
  return Largest();
}

void IdleBlame::Name(std::vector<DeviceSegment>* segments) {
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
    const IdleGap gap = IdleGap::OfNote(segment.start_ns, segment.end_ns, note);
    Sweep(gap, 0, &details);
    segment.cause = Largest();
    if (segment.end_ns - segment.start_ns < kWorthSplittingNs) {
      put(segment);
      continue;
    }
    int64_t from_ns = segment.start_ns;
    Walk(gap, [&](const SegmentList::Entry& entry, int64_t start_ns, int64_t end_ns, Teller teller) {
      put({from_ns, start_ns, DeviceActivity::kIdle, Cause::kUnknown, 0});
      put({start_ns, end_ns, DeviceActivity::kIdle, CauseOfEntry(entry, end_ns - start_ns, gap, teller), 0});
      from_ns = end_ns;
    });
    put({from_ns, segment.end_ns, DeviceActivity::kIdle, Cause::kUnknown, 0});
  }
  segments->swap(named);
}

}  // namespace trainperf
