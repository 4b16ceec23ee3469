// One device's operations, in the order of their starts, as they become final: unions, idle gaps and their sort,
// kernels and copies, added to the cells that the time belongs to.

#ifndef TRAINPERF_TIMELINE_DEVICE_TRACK_H_
#define TRAINPERF_TIMELINE_DEVICE_TRACK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "trainperf/base/name_table.h"
#include "trainperf/event/device_op.h"
#include "trainperf/timeline/device_sums.h"
#include "trainperf/timeline/launch_table.h"

namespace trainperf {

// From one place where a step may end to the next.
struct DeviceCell {
  int64_t start_ns = 0;
  uint64_t serial = 0;
  std::vector<DeviceSums> devices;  // by track
  std::vector<CallSum> calls;
};
using DeviceCells = std::deque<std::unique_ptr<DeviceCell>>;

// An operation, and the call that asked for it.
struct PendingOp {
  DeviceOp op;
  int64_t launch_start_ns = -1;  // -1: no call is known
  int64_t launch_end_ns = 0;
  int64_t sync_end_ns = 0;
  int64_t step_sync_end_ns = 0;
  ThreadId thread = 0;
  bool graph = false;
  bool first_of_launch = false;
};

class DeviceTrack {
 public:
  static constexpr int64_t kSyncSlackNs = 10'000;  // a wait that ends as late after the device's last work is for it
  // From the end of a launch call to the kernel's start: longer means that it waits for something else.
  static constexpr int64_t kLatencyNs = 20'000;

  DeviceTrack(uint32_t device, size_t position, size_t max_segments)
      : device_(device), position_(position), max_segments_(max_segments) {}

  struct Context {
    DeviceCells* cells;
    LaunchTable* launches;
    const std::deque<int64_t>* closed;  // the ends of the last steps, in order
    const NameTable* names;
    ThreadId step_thread;
  };

  // In any order.
  void Add(const PendingOp& op);
  void Join(uint64_t correlation, const Launch& launch);
  // Everything that starts before `time_ns` has come. Idle time whose end has not come is explained up to
  // `idle_until_ns`. Returns up to where all is told.
  int64_t Settle(int64_t time_ns, int64_t idle_until_ns, const Context& context);

  uint32_t device() const { return device_; }
  size_t position() const { return position_; }
  size_t pending() const { return pending_.size(); }
  int64_t settled_ns() const { return settled_ns_; }
  int64_t MedianStart();  // of what is pending
  int64_t lead_ns_median() const;

 private:
  struct ActiveCopy {
    int64_t end_ns;
    CopySum sum;
  };
  enum Union { kAny, kKernel, kCompute, kCollective, kComputeOrCollective, kCopy, kKernelOrCopy, kUnionCount };

  void Sort();
  void Process(const PendingOp& pending, const Context& context);
  void Idle(int64_t until_ns, const PendingOp* next, const Context& context);
  void Grow(Union which, int64_t start_ns, int64_t end_ns, const Context& context);
  void CountKernel(const PendingOp& pending, DeviceSums* sums, uint64_t serial);
  void CountQueue(const PendingOp& pending, int64_t start_ns, const Context& context);
  void CloseCopies(int64_t until_ns, const Context& context);
  bool IsCollective(uint32_t name, const Context& context);
  size_t CellAt(int64_t time_ns, const Context& context);
  DeviceSums& SumsOf(DeviceCell& cell) const;
  template <typename AddTo>
  void ForEachCell(int64_t start_ns, int64_t end_ns, const Context& context, AddTo&& add);

  const uint32_t device_;
  const size_t position_;
  const size_t max_segments_;
  std::vector<PendingOp> pending_;  // sorted by start up to sorted_
  size_t sorted_ = 0;
  size_t cell_ = 0;  // where the last look-up ended
  int64_t settled_ns_ = 0;
  int64_t idle_since_ns_ = 0;  // the end of the last work
  std::array<int64_t, kUnionCount> until_{};
  std::vector<ActiveCopy> copies_;
  std::vector<uint8_t> collective_;  // by name: 0 not known, 1 no, 2 yes
  // Where a kernel's name has its sum in the cell that it was last seen in.
  struct Slot {
    uint64_t serial = 0;
    uint32_t index = 0;
  };
  std::vector<Slot> slots_;
  std::array<int64_t, 512> leads_{};  // histogram, 8 bins an octave
  int64_t lead_count_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_DEVICE_TRACK_H_
