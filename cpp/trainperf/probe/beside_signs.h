// What the CPU clocks of threads tell of who let a sleeper go on: whoever ends its wait must run to do so.
//
//   BesideSigns signs;                                            // of one sleeper's thread
//   signs.Look(thread, its_cpu_ns, sleepers_cpu_ns, now_ns);      // at each look at `thread` while the sleeper sleeps

#ifndef TRAINPERF_PROBE_BESIDE_SIGNS_H_
#define TRAINPERF_PROBE_BESIDE_SIGNS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainperf/event/event.h"

namespace trainperf {

class BesideSigns {
 public:
  static constexpr size_t kMaxThreads = 16;
  static constexpr int64_t kWorksPart = 10;  // on CPU for a tenth of the time: it does something

  // CPU times so far; negative: cannot be read.
  BesideSign Look(ThreadId thread, int64_t cpu_ns, int64_t sleepers_cpu_ns, int64_t now_ns) {
    if (thread == 0 || cpu_ns < 0 || sleepers_cpu_ns < 0) return BesideSign::kNotKnown;
    Seen* seen = &seen_[0];
    for (Seen& s : seen_) {
      if (s.thread == thread) {
        seen = &s;
        break;
      }
      if (s.at_ns < seen->at_ns) seen = &s;
    }
    BesideSign sign = BesideSign::kNotKnown;
    if (seen->thread == thread) {
      const int64_t ran_ns = cpu_ns - seen->cpu_ns;
      const bool wait_ended = sleepers_cpu_ns != seen->sleepers_cpu_ns;
      sign = seen->sign;
      if (ran_ns * kWorksPart >= now_ns - seen->at_ns && ran_ns > 0) {
        sign = BesideSign::kWorks;
      } else if (wait_ended) {
        sign = ran_ns > 0 ? BesideSign::kWoke : BesideSign::kStill;
      } else if (ran_ns > 0) {
        sign = BesideSign::kStirred;
      }
    }
    *seen = {thread, sign, cpu_ns, sleepers_cpu_ns, now_ns};
    return sign;
  }

 private:
  struct Seen {
    ThreadId thread = 0;
    BesideSign sign = BesideSign::kNotKnown;
    int64_t cpu_ns = 0;
    int64_t sleepers_cpu_ns = 0;
    int64_t at_ns = 0;
  };
  std::array<Seen, kMaxThreads> seen_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_BESIDE_SIGNS_H_
