// How a trace's steps are found, told once it has been read: by its ProfilerStep marks where it has them.

#ifndef TRAINPERF_TRACE_STEP_MARKS_H_
#define TRAINPERF_TRACE_STEP_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainperf/trace/trace_reader.h"

namespace trainperf {

struct StepPlan {
  uint16_t thread = 0;            // the step thread; 0: the trace has no host events
  std::vector<int64_t> cuts;      // where a step begins, in order; the last is where the last one ends
  bool cut_at_fetches = false;    // none: each fetch of the first loader begins one
  bool cut_at_optimizer = false;  // none: each step of an optimizer ends one
  int64_t first_index = 0;
  std::string note;  // what people should know of it; "" for plain ProfilerStep marks
};

StepPlan PlanSteps(const Trace& trace);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_STEP_MARKS_H_
