// Decides when our own cost asks for fewer samples.
//
//   Budget budget(0.01);
//   if (budget.Exceeded(now_ns, cost_so_far_ns)) ...   // once a second: what was allowed so far is spent
//
// A short run is judged by the samples of its first seconds: they may cost kCreditNs more than their share, which is
// paid back within kPaybackNs, so that the run's whole cost is within its share from then on. Later what was not spent
// is kept, up to the same credit.
//
// Only grows stricter: a probe that has stepped down stays there, since a run is read as one measurement.

#ifndef TRAINPERF_COLLECT_BUDGET_H_
#define TRAINPERF_COLLECT_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace trainperf {

class Budget {
 public:
  // One start-up spike must not count, and a sampler that costs too much must not go on for long.
  static constexpr int64_t kWindowNs = 1'000'000'000;
  // 60 samples a second cost some 15 ms a second beside a collector on a slow core: enough for 4 s of them.
  static constexpr int64_t kCreditNs = 40'000'000;
  static constexpr int64_t kPaybackNs = 20'000'000'000;

  explicit Budget(double share) : share_(share) {}

  // What was spent until the next call does not count.
  void Restart() {
    start_ns_ = 0;
    left_ns_ = kCreditNs;
  }

  bool Exceeded(int64_t now_ns, int64_t cost_ns) {
    if (start_ns_ == 0) {
      start_ns_ = window_start_ns_ = now_ns;
      window_cost_ns_ = cost_ns;
      return false;
    }
    const int64_t window_ns = now_ns - window_start_ns_;
    if (window_ns < kWindowNs) return false;
    const int64_t paying_ns = std::clamp<int64_t>(start_ns_ + kPaybackNs - window_start_ns_, 0, window_ns);
    const auto allowed_ns =
        static_cast<int64_t>(share_ * static_cast<double>(window_ns)) - paying_ns / (kPaybackNs / kCreditNs);
    const int64_t spent_ns = cost_ns - window_cost_ns_;
    left_ns_ = std::min(left_ns_ + allowed_ns - spent_ns, kCreditNs);
    window_start_ns_ = now_ns;
    window_cost_ns_ = cost_ns;
    return left_ns_ < 0 && spent_ns > allowed_ns;  // else it is being paid back
  }

 private:
  const double share_;
  int64_t start_ns_ = 0;
  int64_t left_ns_ = kCreditNs;
  int64_t window_start_ns_ = 0;
  int64_t window_cost_ns_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_BUDGET_H_
