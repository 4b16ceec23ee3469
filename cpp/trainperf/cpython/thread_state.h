// A copy of what we need of a PyThreadState, read without the GIL.

#ifndef TRAINPERF_CPYTHON_THREAD_STATE_H_
#define TRAINPERF_CPYTHON_THREAD_STATE_H_

#include <cstdint>

#include "trainperf/cpython/process_memory.h"

namespace trainperf {

struct ThreadState {
  uint64_t address;  // of the PyThreadState itself
  uint64_t id;       // never given to another thread state
  uint64_t frame;    // the innermost frame, or the _PyCFrame that knows it
  uint64_t prev;
  uint64_t next;
  int32_t native_tid;         // 0: not known
  bool attached;              // as IsAttached()
  uint64_t critical_section;  // 0: it has locked no object, or the build has a GIL
};

// On a free-threaded build: whether the thread may run Python, by a copy of its thread state. On others: false.
bool IsAttached(const char* copy);

// 3.10 does not note native thread ids: finds out where this libc keeps them in what a pthread_t points to, by looking
// at two threads of our own. True when ReadThreadState can tell native ids. Starts a thread the first time.
// Thread-safe.
bool LearnNativeTids();

// `address` may be stale: false when it is unmapped; garbage, to be judged by the caller, when the memory has been
// reused.
bool ReadThreadState(const ProcessMemory& memory, uint64_t address, ThreadState* state);

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_THREAD_STATE_H_
