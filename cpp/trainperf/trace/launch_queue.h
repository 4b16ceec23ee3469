// How many launches a device has still before it; so that a launch that took long because there was no room is told
// from one that took long of itself. Not thread-safe.

#ifndef TRAINPERF_TRACE_LAUNCH_QUEUE_H_
#define TRAINPERF_TRACE_LAUNCH_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "trainperf/event/device_op.h"
#include "trainperf/event/event.h"

namespace trainperf {

class LaunchQueue {
 public:
  // CUDA's queue holds about a thousand launches; other calls of the process fill a part of it.
  static constexpr size_t kFull = 900;
  static constexpr int64_t kBlockedNs = 50'000;

  // In order of their ends, calls and operations merged. True: the call waited for room.
  bool OnLaunch(const Event& call) {
    const uint64_t id = static_cast<uint64_t>(call.value);
    if (id == 0) return false;
    const bool full = waiting_.size() >= kFull && call.end_ns - call.start_ns >= kBlockedNs;
    if (done_.erase(id) != 0) return full;          // it ran before its call returned
    if (waiting_.size() >= kMax) waiting_.clear();  // operations are missing from the trace
    waiting_.insert(id);
    return full;
  }
  void OnOp(const DeviceOp& op) {
    if (op.correlation == 0 || waiting_.erase(op.correlation) != 0) return;
    if (!done_.insert(op.correlation).second) return;
    uint64_t& oldest = ring_[next_++ % ring_.size()];
    done_.erase(oldest);
    oldest = op.correlation;
  }

 private:
  static constexpr size_t kMax = 16'384;

  absl::flat_hash_set<uint64_t> waiting_;
  absl::flat_hash_set<uint64_t> done_;  // without a launch so far: the newest
  std::array<uint64_t, 1024> ring_{};
  size_t next_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_LAUNCH_QUEUE_H_
