// One thread of a trace: its nested spans become calls that do not overlap (the innermost span owns the time) and
// marks.
//
//   HostLane lane(thread, &stacks);
//   for (const HostRecord& r : by_start) lane.Add(r);     // or Mark(), in between
//   lane.AdvanceTo(now_ns);                               // everything up to now is in events()
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_HOST_LANE_H_
#define TRAINPERF_TRACE_HOST_LANE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/trace/trace_record.h"
#include "trainperf/trace/trace_stacks.h"

namespace trainperf {

class HostLane {
 public:
  static constexpr size_t kMaxDepth = 4096;
  // A runtime call of no known purpose that takes longer waits for something that the trace does not tell.
  static constexpr int64_t kMaxOtherNs = 1'000'000;
  // Waits, allocations and loads that take as long are told with the spans around them.
  static constexpr int64_t kWorthAStackNs = 1'000;

  HostLane(ThreadId thread, TraceStacks* stacks) : thread_(thread), stacks_(stacks) {}

  // In order of HostRecordOrder, not before what AdvanceTo() or Mark() were told. `object`: the loader or optimizer
  // that a fetch or a step of an optimizer is of.
  void Add(const HostRecord& record, uint32_t object = 0);
  // Whatever is open goes on after it, in a piece of its own.
  void Mark(EventKind kind, Bracket bracket, int64_t at_ns);
  // As Mark(), at a time that is past already, but not before the thread's last mark or closed span.
  void AdvanceTo(int64_t now_ns);

  bool in_backward_op() const { return backward_ops_ > 0; }
  size_t depth() const { return stack_.size(); }
  int64_t too_deep() const { return too_deep_; }
  // In order of end_ns; the reader takes from the front.
  std::vector<Event>& events() { return events_; }
  size_t taken = 0;

 private:
  struct Open {
    HostRecord record;
    int64_t cursor_ns;  // up to here its time has been given away
  };

  void CloseTop();
  void Segment(Open* open, int64_t until_ns);
  void PutCall(HostCall call, uint64_t correlation, int64_t start_ns, int64_t end_ns);
  void PutStack(const Open& open);
  Event Make(EventKind kind, int64_t start_ns, int64_t end_ns) const;

  const ThreadId thread_;
  TraceStacks* const stacks_;
  std::vector<Open> stack_;
  std::vector<uint32_t> names_;
  std::vector<Event> events_;
  int backward_ops_ = 0;
  int64_t too_deep_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_HOST_LANE_H_
