#include "trainperf/timeline/stretch_meter.h"

#include <algorithm>
#include <initializer_list>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr double kFade = 0.9;
constexpr double kDominates = 0.8;  // of a stretch, for its clocks to tell how the thread waits

// Takes `ns` out of the pools in their order; returns what none of them had.
int64_t Take(int64_t ns, std::initializer_list<int64_t*> pools) {
  for (int64_t* const pool : pools) {
    const int64_t part = std::min(ns, *pool);
    *pool -= part;
    ns -= part;
  }
  return ns;
}

}  // namespace

void StretchMeter::Start(const Event& mark) {
  Next(mark.end_ns);
  cursor_ns_ = mark.end_ns;
  cpu_ns_ = mark.cpu_ns;
  has_cpu_ = (mark.flags & kNoCpuTime) == 0;
  has_delay_ = (mark.flags & kHasRunDelay) != 0;
  delay_ns_ = mark.run_delay_ns;
  gil_delay_ns_ = 0;
}

void StretchMeter::Next(int64_t end_ns) {
  mark_ns_ = cursor_ns_ = end_ns;
  waited_ns_ = world_stop_ns_ = object_lock_ns_ = 0;
  if (calls_ns() > 0) {
    told_.fill(0);
    itself_ns_ = waiting_ns_ = stand_in_ns_ = 0;
  }
  called_until_ns_ = end_ns;
  waits_.clear();
}

int64_t StretchMeter::AddGilWait(const Event& wait, int64_t* start_ns, int64_t* end_ns) {
  *start_ns = std::max(wait.start_ns, cursor_ns_);
  *end_ns = wait.end_ns;
  if (*end_ns <= *start_ns) return 0;
  const int64_t waited_ns = *end_ns - *start_ns;
  waited_ns_ += waited_ns;
  const Mechanism mechanism = MechanismOf(static_cast<GilWaitKind>(wait.what));
  if (mechanism == Mechanism::kWorldStop) world_stop_ns_ += waited_ns;
  if (mechanism == Mechanism::kObjectLock) object_lock_ns_ += waited_ns;
  if (mechanism == Mechanism::kGilWait) gil_total_ns_ += waited_ns;
  gil_delay_ns_ += std::clamp<int64_t>(wait.run_delay_ns, 0, waited_ns);
  cursor_ns_ = *end_ns;
  if (waits_.size() >= kMaxWaits) {
    called_until_ns_ = waits_.back().second;  // no call reaches back that far
    waits_.clear();
  }
  waits_.emplace_back(*start_ns, *end_ns);
  return waited_ns;
}

int64_t StretchMeter::AddCall(int64_t start_ns, int64_t end_ns, Mechanism mechanism, Caller caller) {
  start_ns = std::max(start_ns, called_until_ns_);
  if (end_ns <= start_ns) return 0;
  int64_t ns = end_ns - start_ns;
  for (auto wait = waits_.rbegin(); wait != waits_.rend() && wait->second > start_ns; ++wait) {
    ns -= std::max<int64_t>(std::min(wait->second, end_ns) - std::max(wait->first, start_ns), 0);
  }
  told_[static_cast<size_t>(mechanism)] += ns;
  (caller == Caller::kItself ? itself_ns_ : caller == Caller::kWaiting ? waiting_ns_ : stand_in_ns_) += ns;
  called_until_ns_ = end_ns;
  cursor_ns_ = std::max(cursor_ns_, end_ns);
  return ns;
}

// The calls' time was measured with the rest: it comes out of what their kind of caller spends.
void StretchMeter::TakeOut(Measures* m, int64_t* blocked_ns) {
  if (calls_ns() == 0) return;
  Take(stand_in_ns_, {blocked_ns, &m->delay, &m->cpu});
  const int64_t left_ns = m->cpu + *blocked_ns + m->delay;
  Take(itself_ns_, {&m->cpu, blocked_ns, &m->delay});
  if (waiting_ns_ == 0) return;
  if (static_cast<double>(waiting_ns_) >= kDominates * static_cast<double>(left_ns)) {
    const bool spins = m->cpu > waiting_ns_ / 2;  // a flag of the device's context: all of its waits do, or none
    spin_ns_ = spin_ns_ * kFade + (spins ? static_cast<double>(waiting_ns_) : 0);
    sleep_ns_ = sleep_ns_ * kFade + (spins ? 0 : static_cast<double>(waiting_ns_));
  }
  const int64_t spun_ns = static_cast<int64_t>(static_cast<double>(waiting_ns_) * spin_share());
  const int64_t rest_ns = Take(spun_ns, {&m->cpu}) + waiting_ns_ - spun_ns;
  Take(rest_ns, {blocked_ns, &m->cpu, &m->delay});
}

void StretchMeter::TellWaits(Measures* m) const {
  m->gil = waited_ns_ - world_stop_ns_ - object_lock_ns_;
  m->world_stop = world_stop_ns_;
  m->object_lock = object_lock_ns_;
}

void StretchMeter::Tell(Measures* m) {
  if (calls_ns() == 0) return;
  m->has_told = true;
  m->told = told_;
}

Measures StretchMeter::Close(const Event& mark, bool in_gc) {
  const bool has_cpu = (mark.flags & kNoCpuTime) == 0;
  Measures m;
  if (!has_cpu_ || !has_cpu) {
    m = CloseUnread(mark.end_ns, in_gc);
  } else {
    TellWaits(&m);
    const int64_t left = mark.end_ns - mark_ns_ - waited_ns_;
    m.cpu = std::clamp<int64_t>(mark.cpu_ns - cpu_ns_, 0, left);
    int64_t delay = 0;
    if ((mark.flags & kHasRunDelay) != 0 && has_delay_) delay = mark.run_delay_ns - delay_ns_ - gil_delay_ns_;
    m.delay = std::clamp<int64_t>(delay, 0, left - m.cpu);
    int64_t blocked = left - m.cpu - m.delay;
    TakeOut(&m, &blocked);
    Tell(&m);
    if (in_gc) {
      m.gc = m.cpu + blocked;
      m.cpu = 0;
    } else if (stand_in_ns_ > 0) {
      m.unknown = blocked;  // the stand-in did not wait, and its clocks are not read
    } else {
      (blocked < kBriefNs ? m.brief : m.blocked) = blocked;
    }
    Next(mark.end_ns);
  }
  if ((mark.flags & kHasRunDelay) != 0) {
    has_delay_ = true;
    delay_ns_ = mark.run_delay_ns;
    gil_delay_ns_ = 0;
  }
  has_cpu_ = has_cpu;
  cpu_ns_ = mark.cpu_ns;
  return m;
}

Measures StretchMeter::CloseUnread(int64_t end_ns, bool in_gc) {
  Measures m;
  TellWaits(&m);
  (in_gc ? m.gc : m.unknown) = end_ns - mark_ns_ - waited_ns_ - calls_ns();
  Tell(&m);
  Next(end_ns);
  return m;
}

}  // namespace trainperf
