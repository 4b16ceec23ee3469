// Decides when what was seen goes into the file: so seldom that it takes a thousandth of a core, but at least once in
// five seconds, whatever it takes. What a killed run loses is what came since.
//
//   CommitPace pace(now_ns);
//   if (pace.Due(now_ns)) { commit; pace.Done(now_ns, cpu_ns); }

#ifndef TRAINPERF_COLLECT_COMMIT_PACE_H_
#define TRAINPERF_COLLECT_COMMIT_PACE_H_

#include <algorithm>
#include <cstdint>

namespace trainperf {

class CommitPace {
 public:
  static constexpr int64_t kShortestNs = 1'000'000'000;
  static constexpr int64_t kLongestNs = 5'000'000'000;
  static constexpr int64_t kTimesItsCost = 1000;  // a second's steps of 10 ms take 3 ms; several seconds' less for each

  explicit CommitPace(int64_t now_ns) : next_ns_(now_ns + kShortestNs) {}

  bool Due(int64_t now_ns) const { return now_ns >= next_ns_; }
  void Done(int64_t now_ns, int64_t cpu_ns) {
    next_ns_ = now_ns + std::clamp(kTimesItsCost * cpu_ns, kShortestNs, kLongestNs);
  }

 private:
  int64_t next_ns_;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_COMMIT_PACE_H_
