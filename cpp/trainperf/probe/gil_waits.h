// Exact GIL waits of every thread, by a hook in CPython's own import table.
//
//   auto waits = GilWaits::Install();   // Requires GIL. An error says why there can be no exact waits here.
//   ...                                 // watched threads' waits arrive as kGilWait events in their rings
//   waits->reset();                     // Requires GIL. Takes the hook out again, if it is still ours.
//
// A wait for the GIL arrives as one event per slice, since the holder may change in between, and where it is does. A
// watched thread that waits alone wakes after 0.3 ms and then each 1.6 ms or so, to look, until a switch interval (5
// ms) is over; any thread that waits does so once in each further one. Where CPython asks
// a thread to give the GIL up, that thread then waits until another has it (kHandOff): the wait for the GIL has begun,
// so it counts as one, and is summed apart as well.

#ifndef TRAINPERF_PROBE_GIL_WAITS_H_
#define TRAINPERF_PROBE_GIL_WAITS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainperf/event/event.h"

namespace trainperf {

class GilWaits {
 public:
  struct Stats {
    int64_t hook_calls;        // waits timed, on all threads, hand-offs included
    int64_t captures;          // holder's stacks read
    int64_t captures_refused;  // over the rate limit, or the read was rejected
    int64_t cost_ns;           // cost on the user's threads so far: calibrated, and measured for watched threads
    int64_t hand_offs;
    int64_t hand_off_ns;
  };

  static absl::StatusOr<std::unique_ptr<GilWaits>> Install();
  virtual ~GilWaits() = default;    // Requires GIL.
  virtual Stats stats() const = 0;  // Thread-safe.
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_GIL_WAITS_H_
