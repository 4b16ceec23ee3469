// What one device did between two places where a step may end, while it adds up. Steps are made of whole ones, so that
// a cut can be decided after the fact.

#ifndef TRAINPERF_TIMELINE_DEVICE_SUMS_H_
#define TRAINPERF_TIMELINE_DEVICE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/timeline/device_records.h"

namespace trainperf {

// Idle time that the host's own doings explain, as soon as these are settled.
struct IdleGap {
  int64_t start_ns;
  int64_t end_ns;
  int64_t ns;  // that it stands for: more than its length when others were merged into it
  // The thread had waited for the device before: what it needed to refill it is the wait's fault.
  bool after_sync;
  bool after_step_sync;  // the step thread had, when `launcher` is another
  ThreadId launcher;     // of the work that ended it; 0: the step thread, or none came

  // DeviceSegment::name of an idle one, until its cause is known: what a segment cannot say of the gap. Not 0.
  uint32_t note() const { return launcher << 3 | (after_step_sync ? 4u : 0u) | (after_sync ? 2u : 0u) | 1u; }
  static IdleGap OfNote(int64_t start_ns, int64_t end_ns, uint32_t note) {
    return {start_ns, end_ns, end_ns - start_ns, (note & 2) != 0, (note & 4) != 0, note >> 3};
  }
};

class DeviceSums {
 public:
  static constexpr size_t kMaxGaps = 65'536;

  void Reset();
  // `later` follows on this one.
  void Append(const DeviceSums& later, size_t max_segments);
  void AddGap(const IdleGap& gap);
  void AddCopy(const CopySum& copy);
  // Follows on the last one; an empty one is left out.
  void AddSegment(const DeviceSegment& segment, size_t max_segments);
  void CompactSegments(size_t max);
  // One entry for each name.
  void MergeKernels();
  size_t memory() const {
    return gaps.capacity() * sizeof(IdleGap) + kernel_sums.capacity() * sizeof(KernelSum) +
           segments.capacity() * sizeof(DeviceSegment);
  }

  bool used = false;
  bool incomplete = false;
  // Lengths of unions: of everything; of kernels; of those that are no collectives; and so on.
  int64_t busy_ns = 0;
  int64_t kernel_ns = 0;
  int64_t compute_ns = 0;
  int64_t collective_ns = 0;
  int64_t compute_or_collective_ns = 0;
  int64_t copy_ns = 0;
  int64_t kernel_or_copy_ns = 0;
  int64_t between_ns = 0;  // idle, launch
  int64_t latency_ns = 0;  // idle, launch: from the end of the launch call on
  int64_t waiting_ns = 0;  // idle, unknown: what was queued waits for what is not seen
  int64_t kernels = 0;
  int64_t launches = 0;
  int64_t copies = 0;
  int64_t tiny_kernels = 0;
  int64_t starved_gaps = 0;
  int64_t first_kernel_ns = -1;  // when it started
  int64_t queued_at_end = 0;
  int64_t queued_before = 0;  // at the ends of steps that were closed before that was known
  std::vector<IdleGap> gaps;
  std::vector<KernelSum> kernel_sums;
  std::vector<CopySum> copy_sums;
  std::vector<DeviceSegment> segments;

 private:
  std::vector<int64_t> lengths_;  // CompactSegments' own
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_DEVICE_SUMS_H_
