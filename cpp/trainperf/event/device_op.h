// What ran on a device: a kernel, a copy or a memset. Written by probe/cuda (CUPTI) and trace/ (a Kineto trace), read
// by the timeline's device lane, which joins it by correlation to the host's kCall event that launched it.
//
// Plain data of 56 bytes. Times are those of the host's events: CLOCK_MONOTONIC in nanoseconds, or the trace's clock.

#ifndef TRAINPERF_EVENT_DEVICE_OP_H_
#define TRAINPERF_EVENT_DEVICE_OP_H_

#include <cstdint>
#include <type_traits>

namespace trainperf {

enum class DeviceOpKind : uint8_t { kKernel, kMemcpy, kMemset };

enum class CopyDirection : uint8_t { kNone, kHostToDevice, kDeviceToHost, kDeviceToDevice, kPeerToPeer, kHostToHost };

enum class MemoryKind : uint8_t { kUnknown, kPageable, kPinned, kDevice, kManaged };

// DeviceOp::flags
inline constexpr uint8_t kFromGraph = 1;  // of a CUDA graph: several operations share one launch's correlation

struct DeviceOp {
  int64_t start_ns;
  int64_t end_ns;
  uint64_t correlation;  // of the call that asked for it, widened to 64 bits; 0: not known
  int64_t bytes;         // copies and memsets; -1: not known
  uint32_t name;         // base/name_table.h; 0: none
  uint32_t stream;
  uint32_t device;
  DeviceOpKind kind;
  CopyDirection direction;
  MemoryKind from;  // copies: the memory's kinds on both sides
  MemoryKind to;
  uint8_t flags;
};
static_assert(sizeof(DeviceOp) == 56 && std::is_trivially_copyable_v<DeviceOp>);

}  // namespace trainperf

#endif  // TRAINPERF_EVENT_DEVICE_OP_H_
