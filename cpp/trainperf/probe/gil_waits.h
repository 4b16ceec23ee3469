// Exact GIL waits of every thread, by a hook in CPython's own import table.
//
//   auto waits = GilWaits::Install();   // Requires GIL. An error says why there can be no exact waits here.
//   ...                                 // watched threads' waits arrive as kGilWait events in their rings
//   waits->reset();                     // Requires GIL. Takes the hook out again, if it is still ours.

#ifndef TRAINPERF_PROBE_GIL_WAITS_H_
#define TRAINPERF_PROBE_GIL_WAITS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace trainperf {

class GilWaits {
 public:
  struct Stats {
    int64_t hook_calls;         // waits timed, on all threads
    int64_t captures;           // holder's stacks read
    int64_t captures_refused;   // over the rate limit, or the read was rejected
    int64_t cost_ns;            // calibrated cost on the user's threads so far
  };

  static absl::StatusOr<std::unique_ptr<GilWaits>> Install();
  virtual ~GilWaits() = default;  // Requires GIL.
  virtual Stats stats() const = 0;  // Thread-safe.
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_GIL_WAITS_H_
