// How long the whole process stood still: Ctrl-Z, a debugger, a paused container, a suspended job.
//
//   standstill.Woke(asleep_ns, NowNs(), wanted_ns, run_delay_ns);   // after each sleep of a thread of ours
//   standstill.Correct(&event);                                     // then of each event, in their order
//
// A stopped thread is neither on a CPU nor in its queue, so the kernel's accounts have nothing of it, and the training
// thread would seem blocked in whatever it did. But then our own thread slept on as well, with nobody in its way.

#ifndef TRAINPERF_COLLECT_STANDSTILL_H_
#define TRAINPERF_COLLECT_STANDSTILL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"

namespace trainperf {

class Standstill {
 public:
  static constexpr int64_t kShortestNs = 500'000'000;  // less is not told from a machine that stutters

  // `run_delay_ns`: how long the sleeper has waited for a CPU, ever; negative: not known, and then nothing is. What it
  // slept beyond `wanted_ns` and did not wait for a CPU was a standstill; at least, as its begin is not known.
  void Woke(int64_t asleep_ns, int64_t now_ns, int64_t wanted_ns, int64_t run_delay_ns) {
    if (run_delay_ns < 0) return;
    const int64_t still_ns = now_ns - asleep_ns - wanted_ns - (run_delay_ns - run_delay_ns_);
    run_delay_ns_ = run_delay_ns;
    if (still_ns < kShortestNs) return;
    before_ns_ = total_ns_;
    total_ns_ += still_ns;
    over_ns_ = asleep_ns + still_ns;
    if (stops_.size() < kMaxStops) stops_.emplace_back();
    stops_.back().over_ns = over_ns_;
    stops_.back().ns += still_ns;
  }

  // As if the thread had been in its CPU's queue meanwhile: it was kept from running, and did not ask to be. One that
  // waited for the GIL did not wait for its holder then.
  void Correct(Event* event) const {
    if ((event->flags & kHasRunDelay) != 0) event->run_delay_ns += event->end_ns >= over_ns_ ? total_ns_ : before_ns_;
    const bool waited = event->kind == EventKind::kGilWait && event->start_ns < over_ns_ && event->end_ns >= over_ns_;
    if (waited) event->start_ns = std::min(event->start_ns + total_ns_ - before_ns_, event->end_ns);
  }

  // All of those that were over after `from_ns`.
  int64_t SinceNs(int64_t from_ns) const {
    int64_t ns = 0;
    for (const Stop& stop : stops_) ns += stop.over_ns > from_ns ? stop.ns : 0;
    return ns;
  }

 private:
  static constexpr size_t kMaxStops = 256;  // more are one with the last
  struct Stop {
    int64_t over_ns = 0;
    int64_t ns = 0;
  };

  std::vector<Stop> stops_;
  int64_t run_delay_ns_ = 0;
  int64_t total_ns_ = 0;
  int64_t before_ns_ = 0;  // without the last one
  int64_t over_ns_ = 0;    // marks from then on were made after the last one
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_STANDSTILL_H_
