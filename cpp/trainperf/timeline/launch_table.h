// The calls that asked for work on a device, by correlation: what an operation is joined to. Never by time.
//
// A ring of fixed size, by the low bits of the correlation. Correlations of one process rise, and 12 to 29 of them go
// by for each launch of torch's, so a slot is taken again 2,000 to 5,000 launches later; a device's queue holds some
// 1,000. A slot has room for two: the ids of two threads may be far apart and meet in it, while both wait in a queue.

#ifndef TRAINPERF_TIMELINE_LAUNCH_TABLE_H_
#define TRAINPERF_TIMELINE_LAUNCH_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"

namespace trainperf {

struct Launch {
  uint64_t correlation = 0;  // 0: none
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t sync_end_ns = 0;       // of the last call before it in which its thread waited for the device
  int64_t step_sync_end_ns = 0;  // in which the step thread did
  ThreadId thread = 0;
  bool graph = false;
  bool kernel = false;  // of a kernel or a graph
  bool begun = false;   // an operation of it has started
};

class LaunchTable {
 public:
  static constexpr size_t kSize = 65'536;  // launches

  void Add(const Launch& launch) {
    if (slots_.empty()) slots_.resize(kSize / 2);
    if (first_ == 0 || launch.correlation < first_) first_ = launch.correlation;
    Slot& slot = slots_[launch.correlation % slots_.size()];
    if (slot.later.correlation != launch.correlation) slot.earlier = slot.later;
    slot.later = launch;
    if (launch.kernel && launch.correlation > newest_) newest_ = launch.correlation;
  }
  Launch* Find(uint64_t correlation) {
    if (correlation == 0 || slots_.empty()) return nullptr;
    Slot& slot = slots_[correlation % slots_.size()];
    if (slot.later.correlation == correlation) return &slot.later;
    return slot.earlier.correlation == correlation ? &slot.earlier : nullptr;
  }
  bool empty() const { return slots_.empty(); }
  // Whether the operation was asked for before the first call that is known.
  bool IsBefore(uint64_t correlation) const { return correlation < first_; }
  // Whether the latest kernel that was launched is still to run. False before the first.
  bool HasQueued() {
    const Launch* newest = Find(newest_);
    return newest != nullptr && !newest->begun;
  }

 private:
  struct Slot {
    Launch later, earlier;  // by when they were added
  };
  std::vector<Slot> slots_;
  uint64_t first_ = 0;
  uint64_t newest_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_LAUNCH_TABLE_H_
