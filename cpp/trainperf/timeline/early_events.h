// Events from before the step thread is known; of each thread the latest, so that a busy one
// cannot push out the first fetch of another.

#ifndef TRAINPERF_TIMELINE_EARLY_EVENTS_H_
#define TRAINPERF_TIMELINE_EARLY_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/event/event.h"

namespace trainperf {

class EarlyEvents {
 public:
  static constexpr size_t kMaxPerThread = 16'384;
  static constexpr size_t kMaxThreads = 64;

  void Add(const Event& event);
  // All of them, in order of end_ns; empties.
  std::vector<Event> Take();
  int64_t dropped() const { return dropped_; }

 private:
  absl::flat_hash_map<ThreadId, std::deque<Event>> threads_;
  int64_t dropped_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_EARLY_EVENTS_H_
