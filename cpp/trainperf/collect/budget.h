// Decides when our own cost asks for fewer samples.
//
//   Budget budget(0.01);
//   if (budget.Exceeded(now_ns, cost_so_far_ns)) ...   // once a second: over the last window we cost more than 1 %
//
// Only grows stricter: a probe that has stepped down stays there, since a run is read as one measurement.

#ifndef TRAINPERF_COLLECT_BUDGET_H_
#define TRAINPERF_COLLECT_BUDGET_H_

#include <cstdint>

namespace trainperf {

class Budget {
 public:
  // One start-up spike must not count, and a sampler that costs too much must not go on for long.
  static constexpr int64_t kWindowNs = 1'000'000'000;

  explicit Budget(double share) : share_(share) {}

  // What was spent until the next call does not count.
  void Restart() { window_start_ns_ = 0; }

  bool Exceeded(int64_t now_ns, int64_t cost_ns) {
    if (window_start_ns_ == 0) {
      window_start_ns_ = now_ns;
      window_cost_ns_ = cost_ns;
      return false;
    }
    if (now_ns - window_start_ns_ < kWindowNs) return false;
    const bool exceeded =
        static_cast<double>(cost_ns - window_cost_ns_) > share_ * static_cast<double>(now_ns - window_start_ns_);
    window_start_ns_ = now_ns;
    window_cost_ns_ = cost_ns;
    return exceeded;
  }

 private:
  const double share_;
  int64_t window_start_ns_ = 0;
  int64_t window_cost_ns_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_BUDGET_H_
