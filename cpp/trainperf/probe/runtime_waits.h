// What takes the GIL's place on a free-threaded CPython, exactly, by a hook in CPython's own import table: waits while
// all threads are stopped ("stop the world": a collection, a tracer that is set), and for a lock of the interpreter's
// own, such as that of an object which two threads change.
//
//   auto waits = RuntimeWaits::Install();   // Requires an attached thread. An error says why there can be none here.
//   ...                                     // watched threads' waits arrive as kGilWait events in their rings
//   waits.reset();                          // likewise
//
// CPython parks a thread in a semaphore on its own stack, beside the address that it waits on: if that is the state of
// its own thread, which another has set to "suspended", the world is stopped; if it is a mutex, that is contended.
// Locks that a program takes itself (threading.Lock) are none of these.

#ifndef TRAINPERF_PROBE_RUNTIME_WAITS_H_
#define TRAINPERF_PROBE_RUNTIME_WAITS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace trainperf {

class RuntimeWaits {
 public:
  struct Stats {
    int64_t world_stops;  // waits timed, on all threads
    int64_t locks;
    int64_t captures;  // stacks read
    int64_t captures_refused;
    int64_t cost_ns;  // on the user's threads so far
  };

  static absl::StatusOr<std::unique_ptr<RuntimeWaits>> Install();
  virtual ~RuntimeWaits() = default;  // Requires an attached thread.
  virtual Stats stats() const = 0;    // Thread-safe.
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_RUNTIME_WAITS_H_
