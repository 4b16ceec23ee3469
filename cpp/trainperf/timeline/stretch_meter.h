// Measures the stretch of the step thread between two marks: what of its wall time was GIL wait, collection, CPU, run
// delay and blocked. The parts sum to the wall time, whatever the clocks say.

#ifndef TRAINPERF_TIMELINE_STRETCH_METER_H_
#define TRAINPERF_TIMELINE_STRETCH_METER_H_

#include <algorithm>
#include <cstdint>

#include "trainperf/event/event.h"
#include "trainperf/timeline/piece.h"

namespace trainperf {

class StretchMeter {
 public:
  // Off-CPU time below it is not worth asking the samples: it is the wake-up of a short sleep or a clock's granularity.
  static constexpr int64_t kBriefNs = 50'000;

  void Start(const Event& mark) {
    mark_ns_ = cursor_ns_ = mark.end_ns;
    cpu_ns_ = mark.cpu_ns;
    has_delay_ = (mark.flags & kHasRunDelay) != 0;
    delay_ns_ = mark.run_delay_ns;
    gil_ns_ = gil_delay_ns_ = 0;
  }

  // Clips a wait to what is not yet accounted for, and returns how long that is.
  int64_t AddGilWait(const Event& wait, int64_t* start_ns, int64_t* end_ns) {
    *start_ns = std::max(wait.start_ns, cursor_ns_);
    *end_ns = wait.end_ns;
    if (*end_ns <= *start_ns) return 0;
    const int64_t waited_ns = *end_ns - *start_ns;
    gil_ns_ += waited_ns;
    gil_total_ns_ += waited_ns;
    gil_delay_ns_ += std::clamp<int64_t>(wait.run_delay_ns, 0, waited_ns);
    cursor_ns_ = *end_ns;
    return waited_ns;
  }

  // Closes the stretch at `mark`, whose end_ns must not be before cursor_ns().
  Measures Close(const Event& mark, bool in_gc) {
    Measures m;
    m.gil = gil_ns_;
    const int64_t left = mark.end_ns - mark_ns_ - gil_ns_;
    const int64_t cpu = std::clamp<int64_t>(mark.cpu_ns - cpu_ns_, 0, left);
    int64_t delay = 0;
    if ((mark.flags & kHasRunDelay) != 0) {
      if (has_delay_) delay = mark.run_delay_ns - delay_ns_ - gil_delay_ns_;
      has_delay_ = true;
      delay_ns_ = mark.run_delay_ns;
      gil_delay_ns_ = 0;
    }
    m.delay = std::clamp<int64_t>(delay, 0, left - cpu);
    if (in_gc) {
      m.gc = left - m.delay;
    } else {
      m.cpu = cpu;
      const int64_t blocked = left - cpu - m.delay;
      (blocked < kBriefNs ? m.brief : m.blocked) = blocked;
    }
    mark_ns_ = cursor_ns_ = mark.end_ns;
    cpu_ns_ = mark.cpu_ns;
    gil_ns_ = 0;
    return m;
  }

  // As Close(), where no clock was read.
  Measures CloseUnread(int64_t end_ns, bool in_gc) {
    Measures m;
    m.gil = gil_ns_;
    (in_gc ? m.gc : m.unknown) = end_ns - mark_ns_ - gil_ns_;
    mark_ns_ = cursor_ns_ = end_ns;
    gil_ns_ = 0;
    return m;
  }

  int64_t mark_ns() const { return mark_ns_; }      // of the last mark
  int64_t cursor_ns() const { return cursor_ns_; }  // everything before it has its segment
  int64_t gil_total_ns() const { return gil_total_ns_; }

 private:
  int64_t mark_ns_ = 0;
  int64_t cursor_ns_ = 0;
  int64_t cpu_ns_ = 0;
  int64_t delay_ns_ = 0;
  int64_t gil_ns_ = 0;
  int64_t gil_delay_ns_ = 0;  // since the last reading of the run delay
  int64_t gil_total_ns_ = 0;
  bool has_delay_ = false;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_STRETCH_METER_H_
