// The last calls that gave a device work, by correlation id: when each began, and whether its work was seen.
//
//   LaunchCalls calls;
//   calls.Remember(event);                          // each EventKind::kCall with a correlation id
//   if (calls.Saw(op.correlation, &start_ns)) ...   // its work, which may come before it
//   calls.UnseenSince(begun_ns, ended_ns);          // work that was launched then, and that no record tells of
//
// Not thread-safe.

#ifndef TRAINPERF_PROBE_CUDA_LAUNCH_CALLS_H_
#define TRAINPERF_PROBE_CUDA_LAUNCH_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"

namespace trainperf {

class LaunchCalls {
 public:
  static constexpr size_t kCalls = size_t{1} << 16;

  LaunchCalls() : calls_(kCalls) {}

  void Remember(const Event& call);
  // True: it was made, and began at `call_start_ns`; 0: it has gone from the table.
  bool Find(uint64_t correlation, int64_t* call_start_ns) const;
  bool Saw(uint64_t correlation, int64_t* call_start_ns);
  // Kernels that were launched in this time, after the last one of it that was seen. Calls that failed do not count.
  int64_t UnseenSince(int64_t from_ns, int64_t to_ns) const;

 private:
  struct Call {
    uint64_t correlation = 0;
    int64_t start_ns = 0;
    bool launches = false;  // a kernel
    bool seen = false;
  };

  std::vector<Call> calls_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_LAUNCH_CALLS_H_
