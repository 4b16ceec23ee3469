// Events from before the step thread is known; of each thread the latest, so that a busy one
// cannot push out the first fetch of another.

#ifndef TRAINPERF_TIMELINE_EARLY_EVENTS_H_
#define TRAINPERF_TIMELINE_EARLY_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/event/event.h"

namespace trainperf {

class EarlyEvents {
 public:
  static constexpr size_t kMaxPerThread = 16'384;
  static constexpr size_t kMaxThreads = 64;

  void Add(const Event& event);
  // Calls come by the thousand, and must not push out what the first step begins with.
  struct Call {
    Event event;
    int64_t waited_until_ns;
  };
  static constexpr size_t kMaxCalls = 131'072;
  void AddCall(const Call& call);
  bool HasMarks(ThreadId thread) const;
  // All events, in order of end_ns; empties.
  std::vector<Event> Take();
  template <typename EventFunction, typename CallFunction>
  void ReplayAndKeep(EventFunction&& on_event, CallFunction&& on_call) const {
    EarlyEvents copy = *this;
    copy.Replay(on_event, on_call);
  }
  // Take() with the calls among them.
  template <typename EventFunction, typename CallFunction>
  void Replay(EventFunction&& on_event, CallFunction&& on_call) {
    const std::vector<Event> events = Take();
    const std::deque<Call> calls = std::exchange(calls_, {});
    size_t next = 0;
    for (const Call& call : calls) {
      while (next < events.size() && events[next].end_ns < call.event.end_ns) on_event(events[next++]);
      on_call(call.event, call.waited_until_ns);
    }
    while (next < events.size()) on_event(events[next++]);
  }

 private:
  absl::flat_hash_map<ThreadId, std::deque<Event>> threads_;
  std::deque<Call> calls_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_EARLY_EVENTS_H_
