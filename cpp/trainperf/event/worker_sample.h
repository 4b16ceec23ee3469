// One look at the main thread of a DataLoader worker, or of another child process.

#ifndef TRAINPERF_EVENT_WORKER_SAMPLE_H_
#define TRAINPERF_EVENT_WORKER_SAMPLE_H_

#include <cstdint>

#include "trainperf/event/event.h"

namespace trainperf {

// Whose process it is.
struct WorkerOf {
  uint32_t loader = 0;
  uint32_t child = 0;  // 0: a worker of `loader`; else the number of a child process (collect/child_processes.h)
};

struct WorkerSample {
  WorkerOf of;
  StackId stack;      // 0: it could not be read
  SampleState state;  // kUnknown: it runs, and whether with its GIL is not known
  int32_t call;       // the system call that it waits in; -1: none, as for a page; 0 where it runs
};

}  // namespace trainperf

#endif  // TRAINPERF_EVENT_WORKER_SAMPLE_H_
