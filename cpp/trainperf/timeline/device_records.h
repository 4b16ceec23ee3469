// What the timeline tells its sink about devices: of each step, what each device did in the step's own window.

#ifndef TRAINPERF_TIMELINE_DEVICE_RECORDS_H_
#define TRAINPERF_TIMELINE_DEVICE_RECORDS_H_

#include <cstdint>
#include <vector>

#include "trainperf/event/device_op.h"
#include "trainperf/event/event.h"

namespace trainperf {

enum class DeviceActivity : uint8_t { kKernel, kCopy, kMemset, kCollective, kIdle };
inline constexpr int kDeviceActivityCount = 5;

// Devices that a run tells of: the first that are used. More than a process is seen to have, and the file stays
// bounded.
inline constexpr int kMaxDevices = 16;

// A piece of a device's timeline within a step, in order, without holes.
struct DeviceSegment {
  int64_t start_ns;
  int64_t end_ns;
  DeviceActivity what;
  Cause cause;    // kIdle: the costliest; else kUnknown
  uint32_t name;  // kernels, collectives: base/name_table.h
};

// Kernels of one name that started in a step.
struct KernelSum {
  uint32_t name;
  int64_t count;
  int64_t ns;
  int64_t max_ns;
  int64_t tiny;  // shorter than kTinyKernelNs, or than the call that launched them
};
inline constexpr int64_t kTinyKernelNs = 10'000;

// Copies of one sort that started in a step.
struct CopySum {
  CopyDirection direction;
  MemoryKind from;
  MemoryKind to;
  int64_t count;
  int64_t bytes;
  int64_t ns;
  int64_t exposed_ns;  // while no kernel ran
  int64_t small;       // of at most kSmallCopyBytes: a scalar that the host reads
};
inline constexpr int64_t kSmallCopyBytes = 16;

// Calls of one thread that ended in a step.
struct CallSum {
  ThreadId thread;
  HostCall call;
  int64_t count;
  int64_t failed;
  int64_t ns;
  int64_t max_ns;
};

// busy_ns and idle_ns sum to the step's wall time, unless it is untraced.
struct DeviceStep {
  uint32_t device;
  bool incomplete;  // records of it were lost
  bool untraced;    // kernels were not traced in all of it: nothing else is told of it
  int64_t busy_ns;  // a kernel, copy or memset ran
  int64_t idle_ns[kCauseCount];
  int64_t kernels;
  int64_t kernel_ns;  // a kernel ran
  int64_t launches;
  int64_t copies;
  int64_t copy_ns;
  int64_t exposed_copy_ns;  // a copy ran, and no kernel
  int64_t collective_ns;
  int64_t exposed_collective_ns;  // a collective ran, and no other kernel
  int64_t tiny_kernels;
  int64_t starved_gaps;     // idle until work was launched
  int64_t between_ns;       // idle for less than kBetweenNs before work that was launched already; part of idle, launch
  int64_t first_kernel_ns;  // from the step's start to that of its first kernel; -1: none
  int64_t queue_depth;      // launched, but not yet running, at the step's end
  int64_t lead_ns_median;   // so far: from the end of a kernel's launch call to its start; 0: not known
  std::vector<KernelSum> kernel_sums;
  std::vector<CopySum> copy_sums;
  std::vector<DeviceSegment> segments;  // at most TimelineOptions::max_segments
};
inline constexpr int64_t kBetweenNs = 5'000;

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_DEVICE_RECORDS_H_
