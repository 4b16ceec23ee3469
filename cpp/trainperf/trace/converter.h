// A trace's records to the events of an EventFeed: calls that do not overlap, marks of phases and steps, device
// operations, merged by end_ns.
//
//   TRAINPERF_RETURN_IF_ERROR(Convert(trace.get(), plan, stack_table, &feed, progress));
//
// Backward is where autograd evaluates nodes until the step thread goes on, unless the trace holds Python's functions,
// which tell.

#ifndef TRAINPERF_TRACE_CONVERTER_H_
#define TRAINPERF_TRACE_CONVERTER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/trace/event_feed.h"
#include "trainperf/trace/step_marks.h"
#include "trainperf/trace/trace_reader.h"

namespace trainperf {

struct ConvertStats {
  struct Loader {
    uint32_t object;
    uint32_t name;  // of its spans
  };
  int64_t too_deep = 0;    // spans left out
  int64_t queue_full = 0;  // launches that waited for room
  std::vector<Loader> loaders;
};

// `stacks` may be null. Stops with a Cancelled status when `go_on` gives false.
absl::Status Convert(Trace* trace, const StepPlan& plan, StackTable* stacks, EventFeed* feed,
                     const std::function<bool()>& go_on, ConvertStats* stats);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_CONVERTER_H_
