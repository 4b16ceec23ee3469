// Measures the stretch of the step thread between two marks: what of its wall time was GIL wait, or a wait for what
// takes its place, collection, calls, CPU, run delay and blocked. The parts sum to the wall time, whatever the clocks
// say.

#ifndef TRAINPERF_TIMELINE_STRETCH_METER_H_
#define TRAINPERF_TIMELINE_STRETCH_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/timeline/piece.h"

namespace trainperf {

class StretchMeter {
 public:
  // Off-CPU time below it is not worth asking the samples: it is the wake-up of a short sleep or a clock's granularity.
  static constexpr int64_t kBriefNs = 50'000;

  // Whose time a call takes, and so which of the thread's clocks ran in it.
  enum class Caller : uint8_t {
    kItself,   // the thread works: on CPU
    kWaiting,  // the thread waits for the device: on CPU or off it, as its stretches that are little else tell
    kStandIn,  // autograd's thread, while this one is blocked in backward
  };

  void Start(const Event& mark);

  // Clips a wait to what is not yet accounted for, and returns how long that is.
  int64_t AddGilWait(const Event& wait, int64_t* start_ns, int64_t* end_ns);

  // The same for a call; GIL waits within it stay what they are.
  int64_t AddCall(int64_t start_ns, int64_t end_ns, Mechanism mechanism, Caller caller);

  // Closes the stretch at `mark`, whose end_ns must not be before cursor_ns().
  Measures Close(const Event& mark, bool in_gc);
  // As Close(), where no clock was read.
  Measures CloseUnread(int64_t end_ns, bool in_gc);

  int64_t mark_ns() const { return mark_ns_; }                  // of the last mark
  int64_t cursor_ns() const { return cursor_ns_; }              // everything before it has its segment
  int64_t called_until_ns() const { return called_until_ns_; }  // no call reaches back before it
  int64_t gil_total_ns() const { return gil_total_ns_; }
  // Of the time that the thread waits for the device, the part that is on CPU.
  double spin_share() const { return spin_ns_ + sleep_ns_ > 0 ? spin_ns_ / (spin_ns_ + sleep_ns_) : 1.0; }

 private:
  static constexpr size_t kMaxWaits = 1024;

  int64_t calls_ns() const { return itself_ns_ + waiting_ns_ + stand_in_ns_; }
  void TakeOut(Measures* m, int64_t* blocked_ns);
  void Tell(Measures* m);
  void TellWaits(Measures* m) const;
  void Next(int64_t end_ns);

  int64_t mark_ns_ = 0;
  int64_t cursor_ns_ = 0;
  int64_t cpu_ns_ = 0;
  int64_t delay_ns_ = 0;
  int64_t waited_ns_ = 0;      // for the GIL, and for what takes its place
  int64_t world_stop_ns_ = 0;  // of them
  int64_t object_lock_ns_ = 0;
  int64_t gil_delay_ns_ = 0;  // since the last reading of the run delay
  int64_t gil_total_ns_ = 0;
  bool has_cpu_ = false;
  bool has_delay_ = false;

  // Calls of this stretch.
  std::array<int64_t, kMechanismCount> told_{};
  int64_t itself_ns_ = 0;
  int64_t waiting_ns_ = 0;
  int64_t stand_in_ns_ = 0;
  int64_t called_until_ns_ = 0;
  std::vector<std::pair<int64_t, int64_t>> waits_;  // kGilWait's, that a call may still reach back over

  // How the thread waits for the device; older stretches fade. CUDA spins unless it is told otherwise.
  double spin_ns_ = 0;
  double sleep_ns_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_STRETCH_METER_H_
