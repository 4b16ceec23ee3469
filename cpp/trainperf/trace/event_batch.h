// What was read from a stretch of a trace's text: records, and counts that tell later how the trace is to be read.

#ifndef TRAINPERF_TRACE_EVENT_BATCH_H_
#define TRAINPERF_TRACE_EVENT_BATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/trace/trace_record.h"

namespace trainperf {

struct ThreadCounts {
  int64_t first_event = INT64_MAX;  // its number
  int64_t steps = 0;
  int64_t fetches = 0;
  int64_t optimizers = 0;
  int64_t backward_ops = 0;
  int64_t ops = 0;
  bool python_backward = false;  // python_function events tell when backward runs
};

struct EventBatch {
  // Keeps its memory.
  void Clear() {
    host.clear();
    device.clear();
    steps.clear();
    threads.clear();
    events = bad_times = refused = python_functions = 0;
    first_ns = INT64_MAX;
    last_ns = INT64_MIN;
  }
  void Sort() {
    std::stable_sort(host.begin(), host.end(), HostRecordOrder());
    std::stable_sort(device.begin(), device.end(), DeviceOpOrder());
  }
  ThreadCounts& counts(uint16_t thread) {
    if (threads.size() <= thread) threads.resize(thread + size_t{1});
    threads[thread].first_event = std::min(threads[thread].first_event, events);
    return threads[thread];
  }
  void Extend(int64_t start_ns, int64_t end_ns) {
    first_ns = std::min(first_ns, start_ns);
    last_ns = std::max(last_ns, end_ns);
  }

  std::vector<HostRecord> host;
  std::vector<DeviceOp> device;
  std::vector<StepMark> steps;
  std::vector<ThreadCounts> threads;
  int64_t events = 0;
  int64_t bad_times = 0;  // events without a usable time: NaN, negative, beyond 2^61 ns
  int64_t refused = 0;    // on more threads or devices than we tell apart
  int64_t python_functions = 0;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_EVENT_BATCH_H_
