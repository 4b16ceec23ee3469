// Where CPython's GIL lies, and who holds it.
//
//   auto gil = GilView::Locate();                      // Requires GIL. An error says why there is none to be seen.
//   if (const void* holder = gil->holder()) ...        // Thread-safe; the thread state of the holder: may be freed any
//   time
//
// Of the main interpreter: others with a GIL of their own (3.12) are not seen.

#ifndef TRAINPERF_CPYTHON_GIL_VIEW_H_
#define TRAINPERF_CPYTHON_GIL_VIEW_H_

#include <sys/uio.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace trainperf {

class GilView {
 public:
  // Whether there is one: of free-threaded builds sys._is_gil_enabled(), which PYTHON_GIL=1 and modules that need a GIL
  // change; of others true. Requires GIL.
  static bool IsEnabled();

  // Scans _PyRuntime for the GIL's signature, and accepts only one hit that also follows a release and an acquire,
  // which signal its condition variables. One thread at a time.
  static absl::StatusOr<GilView> Locate();

  // The thread state that holds the GIL; nullptr when nobody does, and at finalization.
  const void* holder() const {
    return __atomic_load_n(locked_, __ATOMIC_ACQUIRE) == 1 ? __atomic_load_n(last_holder_, __ATOMIC_RELAXED) : nullptr;
  }
  // The one that took it last, whether it still holds it or not.
  const void* last_holder() const { return __atomic_load_n(last_holder_, __ATOMIC_RELAXED); }

  // Where it is told who holds it, to be copied together with other memory; and who did when that was copied.
  iovec where() const;
  // The same in another process that runs this interpreter (ProcessMemory::shift()). Only where() and HolderIn() are of
  // use.
  GilView In(uint64_t shift) const;
  static const void* HolderIn(const char* copy);

  // How long a taker waits before it asks the holder to let go: sys.getswitchinterval().
  int64_t switch_interval_ns() const {
    return static_cast<int64_t>(__atomic_load_n(interval_us_, __ATOMIC_RELAXED)) * 1000;
  }

  const void* cond() const { return cond_; }                // takers wait on it
  const void* switch_cond() const { return switch_cond_; }  // who gave it up on request waits until another has it
  // Whether a futex at `address` belongs to a wait for the GIL.
  bool IsWaitAddress(uint64_t address) const;

 private:
  const uint64_t* interval_us_ = nullptr;
  const int32_t* locked_ = nullptr;
  const void* const* last_holder_ = nullptr;
  const void* cond_ = nullptr;
  const void* switch_cond_ = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_GIL_VIEW_H_
