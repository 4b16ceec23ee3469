// Releases the GIL for a scope, as pybind11's gil_scoped_release does, but on a daemon thread as the process exits.
//
//   ReleaseGil release;
//   summary = AnalyzeTrace(path, options);
//
// Why: once the interpreter is being finalized, CPython before 3.14 ends any other thread that asks for the GIL by
// pthread_exit. That unwinds through our frames, out of a destructor: std::terminate, or a segmentation fault in the
// wheels, which have another unwinder inside. So from the process's exit on, others than the thread that exits sleep
// here until the process has ended, as 3.14 has it; those that asked before get it first.

#ifndef TRAINPERF_BINDINGS_RELEASE_GIL_H_
#define TRAINPERF_BINDINGS_RELEASE_GIL_H_

#include <Python.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace trainperf {

inline std::atomic<int> g_exiting_thread{0};
inline std::atomic<int> g_asking_for_gil{0};

// Around each place that takes the GIL. Returns only to a thread that may have it.
class AskForGil {
 public:
  AskForGil() {
    g_asking_for_gil.fetch_add(1);
    const int exiting = g_exiting_thread.load();  // after the count: GiveGilBeforeExit() sees it, or it sees this
    if (exiting == 0 || exiting == static_cast<int>(syscall(SYS_gettid))) return;
    g_asking_for_gil.fetch_sub(1);
    for (;;) pause();
  }
  ~AskForGil() { g_asking_for_gil.fetch_sub(1); }
  AskForGil(const AskForGil&) = delete;
  AskForGil& operator=(const AskForGil&) = delete;
};

// Requires GIL. Called at exit, before finalization.
inline void GiveGilBeforeExit() {
  constexpr int kTries = 5000;  // a second: of a forked child's parent, none of which is here, some may be counted
  g_exiting_thread.store(static_cast<int>(syscall(SYS_gettid)));
  PyThreadState* const state = PyEval_SaveThread();
  for (int i = 0; i < kTries && g_asking_for_gil.load() > 0; ++i) usleep(200);
  PyEval_RestoreThread(state);
}

// Requires GIL.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() noexcept(false) {
    const AskForGil ask;
    PyEval_RestoreThread(state_);
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_RELEASE_GIL_H_
