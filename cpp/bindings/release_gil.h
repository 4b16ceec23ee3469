// Releases the GIL for a scope, as pybind11's gil_scoped_release does, but on a daemon thread as the process exits.
//
//   ReleaseGil release;
//   summary = AnalyzeTrace(path, options);
//
// Why: once the interpreter is being finalized, CPython before 3.14 ends any other thread that asks for the GIL by
// pthread_exit. That unwinds through our frames, out of a destructor: std::terminate, or a segmentation fault in the
// wheels, which have another unwinder inside. Such a thread sleeps here until the process has ended, as 3.14 has it.

#ifndef TRAINPERF_BINDINGS_RELEASE_GIL_H_
#define TRAINPERF_BINDINGS_RELEASE_GIL_H_

#include <Python.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trainperf {

// Whether the calling thread, which has no GIL, would be ended if it asked for it. Thread-safe.
inline bool MayTakeNoGil() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool finalizing = Py_IsFinalizing() != 0;
#else
  const bool finalizing = _Py_IsFinalizing() != 0;
#endif
  return finalizing && syscall(SYS_gettid) != getpid();  // the main thread finalizes
}

// Requires GIL.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  // One that waits for the GIL as finalization begins is still ended: where the unwinder can, it goes through here.
  ~ReleaseGil() noexcept(false) {
    while (MayTakeNoGil()) pause();
    PyEval_RestoreThread(state_);
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_RELEASE_GIL_H_
