#include "trainperf/probe/cuda/trace_windows.h"

#include <algorithm>
#include <cmath>

namespace trainperf {
namespace {

constexpr double kSoonNs = 150e6;       // what is expected within it is planned for now: the next look is before it
constexpr int64_t kStepsAhead = 3;      // a window begins so many steps before the one that it is for
constexpr int64_t kRareSteps = 4;       // what comes once in so many windows' lengths or oftener needs none of its own
constexpr double kSwitchesWorth = 2.0;  // what a window costs for its steps, per what it costs to switch

}  // namespace

TraceWindows::TraceWindows(double share, uint64_t seed, int64_t now_ns, int64_t passed)
    : share_(share),
      random_(seed * 2 + 1),
      accounted_ns_(now_ns),
      begun_passed_(passed),
      looked_ns_(now_ns),
      looked_passed_(passed) {}

void TraceWindows::Account(int64_t now_ns, int64_t cost_ns) {
  spent_ns_ = cost_ns - accounted_cost_ns_;
  left_ns_ += share_ * static_cast<double>(now_ns - accounted_ns_) - static_cast<double>(spent_ns_);
  left_ns_ = std::min(left_ns_, static_cast<double>(kCreditNs));
  accounted_ns_ = now_ns;
  accounted_cost_ns_ = cost_ns;
}

// The median of some looks: one long step is no change.
void TraceWindows::MeasureStep(int64_t now_ns, int64_t passed) {
  if (passed <= looked_passed_) return;
  took_ns_[looks_++ % took_ns_.size()] =
      static_cast<double>(now_ns - looked_ns_) / static_cast<double>(passed - looked_passed_);
  looked_ns_ = now_ns;
  looked_passed_ = passed;
  std::array<double, 7> sorted = took_ns_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min(looks_, sorted.size()));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  step_ns_ = *middle;
}

// So many that the switching is the smaller part of its cost; fewer where the steps are dear.
int64_t TraceWindows::Length() const {
  if (step_cost_ns_ <= 0) return kMostSteps;
  const auto steps = static_cast<int64_t>(std::ceil(kSwitchesWorth * 2 * switch_ns_ / step_cost_ns_));
  const auto affordable = static_cast<int64_t>(static_cast<double>(kCreditNs) / step_cost_ns_);
  return std::min(std::clamp(steps, kFewestSteps, kMostSteps), std::max(affordable, kFewestDear));
}

// From a geometric distribution of this mean, from 1 on (splitmix64).
int64_t TraceWindows::Draw(double mean) {
  uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  const double uniform = (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
  if (mean <= 1) return 1;
  return 1 + static_cast<int64_t>(std::log(uniform) / std::log1p(-1 / mean));
}

void TraceWindows::CloseWindow(int64_t now_ns, int64_t passed, int64_t cost_ns) {
  const int64_t steps = ended_passed_ - begun_passed_;
  if (steps > 0) {
    const double of_steps = static_cast<double>(cost_ns - begun_cost_ns_) - (first_ ? 0 : 2 * switch_ns_);
    step_cost_ns_ = std::max(of_steps, 0.0) / static_cast<double>(steps);
  }
  // What the start cost beyond its credit, for being told late, is not made up for: the next window would be far off.
  if (first_) left_ns_ = std::max(left_ns_, -static_cast<double>(kCreditNs));
  first_ = false;
  lean_since_ns_ = now_ns;
  lean_cost_ns_ = cost_ns;
  const double pays_back = std::max(share_ - lean_rate_, share_ / 10);
  const double wait_ns = std::max(-left_ns_, 0.0) / pays_back;
  // Counted from the window's end, which is by chance. This look is not: after a long step there is always one.
  const auto rest = static_cast<int64_t>(step_ns_ > 0 ? std::ceil(static_cast<double>(kRestNs) / step_ns_) : 0);
  const int64_t from = std::max(passed, ended_passed_ + rest);
  due_ = from + Draw(step_ns_ > 0 ? wait_ns / step_ns_ - static_cast<double>(from - passed) : 1);
  length_ = Length();
  planned_ = true;
}

void TraceWindows::ComeOutOfTurn(int64_t now_ns, int64_t passed) {
  if (left_ns_ < -static_cast<double>(kCreditNs) || step_ns_ <= 0) return;
  const auto come = [&](int64_t in_steps, int64_t length) {
    if (passed + in_steps >= due_) return;
    due_ = passed + in_steps;
    length_ = length;
  };
  const double change = traced_step_ns_ > 0 ? step_ns_ / traced_step_ns_ : 1;
  if (change > kChange || change < 1 / kChange) {
    come(1, 2 * Length());
    return;
  }
  for (const Kind& kind : kinds_) {
    if (kind.period_ns <= 0 || kind.traced >= kTracedOfKind) continue;
    if (static_cast<double>(kind.period_ns) < static_cast<double>(kRareSteps * Length()) * step_ns_) continue;
    const int64_t periods = (now_ns - kind.last_ns) / kind.period_ns + 1;
    const auto in_ns = static_cast<double>(kind.last_ns + periods * kind.period_ns - now_ns);
    if (in_ns > kSoonNs + kStepsAhead * step_ns_) continue;
    come(std::max<int64_t>(static_cast<int64_t>(in_ns / step_ns_) - kStepsAhead, 1), Length() + kStepsAhead);
  }
}

void TraceWindows::SawStep(uint32_t kinds, int64_t start_ns, bool traced) {
  for (int i = 0; i < kKinds; ++i) {
    if ((kinds >> i & 1) == 0) continue;
    Kind& kind = kinds_[static_cast<size_t>(i)];
    if (kind.last_ns != 0) kind.period_ns = start_ns - kind.last_ns;
    kind.last_ns = start_ns;
    kind.traced += traced ? 1 : 0;
  }
}

void TraceWindows::Look(int64_t now_ns, int64_t passed, int64_t cost_ns) {
  Account(now_ns, cost_ns);
  MeasureStep(now_ns, passed);
  if (tracing_) {
    // As much again as in this look is spent already, and not told yet.
    if (first_ && left_ns_ < static_cast<double>(spent_ns_)) due_ = std::min(due_, passed + 1);
    return;
  }
  if (!planned_) {
    if (now_ns - ended_ns_ >= kToldNs) CloseWindow(now_ns, passed, cost_ns);
    return;
  }
  if (now_ns - lean_since_ns_ >= kLeanNs) {
    lean_rate_ = static_cast<double>(cost_ns - lean_cost_ns_) / static_cast<double>(now_ns - lean_since_ns_);
  }
  ComeOutOfTurn(now_ns, passed);
}

void TraceWindows::Switched(int64_t now_ns, int64_t passed) {
  tracing_ = !tracing_;
  if (tracing_) {
    planned_ = false;
    ++windows_;
    begun_passed_ = passed;
    begun_cost_ns_ = accounted_cost_ns_;
    traced_step_ns_ = step_ns_;
    due_ = passed + length_;
  } else {
    if (first_) traced_step_ns_ = step_ns_;
    ended_ns_ = now_ns;
    ended_passed_ = passed;
    due_ = SafePoints::kNever;
  }
}

void TraceWindows::SwitchTook(int64_t ns) {
  const auto took = static_cast<double>(ns);
  switch_ns_ = switch_ns_ > 0 ? 0.8 * switch_ns_ + 0.2 * took : took;
}

void TraceWindows::Restart(int64_t now_ns, int64_t passed, int64_t cost_ns) {
  tracing_ = first_ = true;
  planned_ = false;
  due_ = SafePoints::kNever;
  left_ns_ = 0;
  accounted_ns_ = looked_ns_ = now_ns;
  accounted_cost_ns_ = begun_cost_ns_ = cost_ns;
  begun_passed_ = looked_passed_ = passed;
}

}  // namespace trainperf
