// How long the sampler waits for its next look.
//
//   LookPace pace;
//   int64_t mean_ns = pace.NextNs(period_ns, cpu_ns);  // cpu_ns: what the sampler's thread has used so far
//   pace.Looked(on_cpu);                               // whether the watched thread was met on a CPU
//   pace.MeetOnCpu();                                  // the loop has begun: nothing seen before is of it
//
// What a look costs differs by machine and stack, from 20 to 200 us: it is taken as often as a share of a core pays
// for, and no more often than asked for. A short run, and the start of any, needs looks soon: the first come up to four
// times as often, and a few at once, whatever they cost: the first steps are split by them when they close, after a
// fifth of a second. Of a thread that nearly always waits, a few may all miss it on the CPU, and then nothing could be
// said of its time there: from MeetOnCpu() they come quickly until one has met it.
//
// Used by one thread.

#ifndef TRAINPERF_PROBE_LOOK_PACE_H_
#define TRAINPERF_PROBE_LOOK_PACE_H_

#include <algorithm>
#include <cstdint>

namespace trainperf {

class LookPace {
 public:
  static constexpr double kShare = 0.004;
  static constexpr int64_t kAtOnce = 12;
  static constexpr int kMostToMeet = 48;
  static constexpr int64_t kFirst = 128;
  static constexpr int64_t kFirstOftener = 4;
  static constexpr double kMostStretched = 2.5;  // beyond, it is the budget's to say

  void MeetOnCpu() { left_to_meet_ = kMostToMeet; }

  void Looked(bool on_cpu) {
    ++looks_;
    left_to_meet_ = on_cpu ? 0 : std::max(left_to_meet_ - 1, 0);
  }

  // The first looks are dear, their stacks are new: what they cost is to be known at each.
  bool first() const { return looks_ < kFirst; }

  // What the next look stands for, in the mean.
  int64_t NextNs(int64_t period_ns, int64_t cpu_ns) const {
    if (looks_ < kAtOnce || left_to_meet_ > 0) return period_ns / kFirstOftener;
    const auto paid_ns = static_cast<int64_t>(static_cast<double>(cpu_ns) / static_cast<double>(looks_ + 1) / kShare);
    return std::clamp(paid_ns, first() ? period_ns / kFirstOftener : period_ns,
                      static_cast<int64_t>(kMostStretched * static_cast<double>(period_ns)));
  }

 private:
  int64_t looks_ = 0;
  int left_to_meet_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_LOOK_PACE_H_
