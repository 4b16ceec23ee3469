// The moments at which what CUPTI traces may change: the end of a backward or of a step, on the thread that trains,
// which then calls nothing of CUDA's. Counted there, and looked at here, so that a change meets the very step that was
// chosen for it.
//
//   if (SafePoints::Pass()) ...        // on the thread that trains: one addition and two loads
//   SafePoints::SetDue(SafePoints::passed() + 20);   // the collector
//
// Thread-safe: the process has one watch at a time.

#ifndef TRAINPERF_PROBE_CUDA_SAFE_POINTS_H_
#define TRAINPERF_PROBE_CUDA_SAFE_POINTS_H_

#include <atomic>
#include <cstdint>

namespace trainperf {

class SafePoints {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // True: a change is due.
  static bool Pass() { return passed_.fetch_add(1, std::memory_order_relaxed) + 1 >= due(); }
  static bool IsDue() { return passed() >= due(); }
  static int64_t passed() { return passed_.load(std::memory_order_relaxed); }
  // A change is due once so many have been passed.
  static void SetDue(int64_t passed) { due_.store(passed, std::memory_order_relaxed); }

 private:
  static int64_t due() { return due_.load(std::memory_order_relaxed); }

  static inline std::atomic<int64_t> passed_{0};
  static inline std::atomic<int64_t> due_{kNever};
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_SAFE_POINTS_H_
