// Clocks, in nanoseconds.

#ifndef TRAINPERF_BASE_CLOCK_H_
#define TRAINPERF_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace trainperf {

constexpr int64_t kUs = 1'000, kMs = 1'000'000;

inline int64_t ReadClockNs(clockid_t clock) {
  timespec ts;
  clock_gettime(clock, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

// The clock of every Event. Through the vDSO: about 25 ns.
inline int64_t NowNs() { return ReadClockNs(CLOCK_MONOTONIC); }

// CPU time of the calling thread. A system call: 0.2 to 0.45 us. It also brings the scheduler's own count up to date,
// which /proc/self/task/TID/schedstat alone does not.
inline int64_t ThreadCpuNs() { return ReadClockNs(CLOCK_THREAD_CPUTIME_ID); }

// Of another thread of this process; -1: there is none of that id. What pthread_getcpuclockid() makes of it, which
// wants a pthread_t.
inline int64_t ThreadCpuNs(int32_t native_tid) {
  constexpr uint32_t kPerThread = 4;
  constexpr uint32_t kCpuTime = 2;  // the scheduler's
  timespec ts;
  const auto clock = static_cast<clockid_t>(~static_cast<uint32_t>(native_tid) << 3 | kPerThread | kCpuTime);
  if (native_tid <= 0 || clock_gettime(clock, &ts) != 0) return -1;
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace trainperf

#endif  // TRAINPERF_BASE_CLOCK_H_
