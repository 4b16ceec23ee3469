#include <Python.h>
// Python.h must come first.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/field.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/interpreter_patch.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

// The size that the running interpreter gives _PyRuntime, which need not be that of the headers we saw.
size_t RuntimeSize(const void* runtime) {
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  void* extra = nullptr;
  if (dladdr1(runtime, &info, &extra, RTLD_DL_SYMENT) == 0 || info.dli_saddr != runtime) return 0;
  symbol = static_cast<const ElfW(Sym)*>(extra);
  return symbol != nullptr ? symbol->st_size : 0;
}

// As the interpreter keeps it, in microseconds; 0 when it cannot be told.
uint64_t SwitchIntervalUs() {
  PyObject* get = PySys_GetObject("getswitchinterval");  // borrowed
  PyObject* seconds = get != nullptr ? PyObject_CallObject(get, nullptr) : nullptr;
  const double value = seconds != nullptr ? PyFloat_AsDouble(seconds) : -1;
  Py_XDECREF(seconds);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return value > 0 ? static_cast<uint64_t>(std::llround(value * 1e6)) : 0;
}

using Signal = int (*)(pthread_cond_t*);

// What one thread signals while it lets go of the GIL and takes it again. Never destroyed: others pass through.
struct Signals {
  std::atomic<Signal> next{&pthread_cond_signal};
  std::atomic<bool> noting{false};
  pthread_t thread{};
  int count = 0;
  const void* conds[8] = {};

  bool Have(const void* cond) const { return std::find(conds, conds + count, cond) != conds + count; }
};
Signals g_signals;

int NoteSignal(pthread_cond_t* cond) {
  Signals& signals = g_signals;
  if (signals.noting.load(std::memory_order_acquire) && pthread_equal(signals.thread, pthread_self()) != 0 &&
      signals.count < 8) {
    signals.conds[signals.count++] = cond;
  }
  return signals.next.load(std::memory_order_relaxed)(cond);
}

}  // namespace

bool GilView::IsEnabled() {
  if (!tp_python_offsets.free_threaded) return true;
  PyObject* ask = PySys_GetObject("_is_gil_enabled");  // borrowed
  PyObject* answer = ask != nullptr ? PyObject_CallNoArgs(ask) : nullptr;
  const bool enabled = answer == Py_True;
  Py_XDECREF(answer);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return enabled;
}

bool GilView::IsWaitAddress(uint64_t address) const {
  const auto size = static_cast<uint64_t>(tp_python_offsets.cond_size);
  return address - reinterpret_cast<uint64_t>(cond_) < size ||
         address - reinterpret_cast<uint64_t>(switch_cond_) < size;
}

iovec GilView::where() const {
  const auto* begin = reinterpret_cast<const char*>(last_holder_);
  const auto* end = reinterpret_cast<const char*>(locked_) + sizeof(*locked_);
  return {const_cast<char*>(begin), static_cast<size_t>(end - begin)};
}

GilView GilView::In(uint64_t shift) const {
  GilView other;
  const auto move = [shift](auto* address) {
    return reinterpret_cast<decltype(address)>(reinterpret_cast<uint64_t>(address) + shift);
  };
  other.last_holder_ = move(last_holder_);
  other.locked_ = move(locked_);
  return other;
}

const void* GilView::HolderIn(const char* copy) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  const auto locked = At<int32_t>(copy, offsets.gil_locked - offsets.gil_last_holder);
  return locked == 1 ? At<const void*>(copy, 0) : nullptr;
}

absl::StatusOr<GilView> GilView::Locate() {
  const TpPythonOffsets& offsets = tp_python_offsets;
  TpAskInterpreter();
  if (offsets.unsupported != nullptr) return absl::UnimplementedError(offsets.unsupported);
  if (!IsEnabled()) return absl::UnimplementedError("this build of CPython has no GIL");
  const char* runtime = static_cast<const char*>(TpRuntimeAddress());
  const size_t size = RuntimeSize(runtime);
  if (size < static_cast<size_t>(offsets.gil_size)) {
    return absl::NotFoundError("the size of _PyRuntime cannot be read: a stripped interpreter");
  }
  const uint64_t interval = SwitchIntervalUs();
  if (interval == 0) return absl::NotFoundError("the interpreter does not tell its switch interval");
  const void* self = PyThreadState_Get();
  std::vector<const char*> hits;
  for (const char* at = runtime; at + offsets.gil_size <= runtime + size; at += alignof(void*)) {
    if (At<uint64_t>(at, offsets.gil_interval) == interval && At<const void*>(at, offsets.gil_last_holder) == self &&
        At<int32_t>(at, offsets.gil_locked) == 1) {
      hits.push_back(at);
    }
  }
  if (hits.size() != 1) {
    return absl::NotFoundError(
        absl::StrCat("the GIL was found ", hits.size(),
                     " times in _PyRuntime, not once: another interpreter than the main one, or an unknown layout"));
  }
  GilView view;
  view.interval_us_ = reinterpret_cast<const uint64_t*>(hits[0] + offsets.gil_interval);
  view.last_holder_ = reinterpret_cast<const void* const*>(hits[0] + offsets.gil_last_holder);
  view.locked_ = reinterpret_cast<const int32_t*>(hits[0] + offsets.gil_locked);
  view.cond_ = hits[0] + offsets.gil_cond;
  view.switch_cond_ = hits[0] + offsets.gil_switch_cond;

  // Who lets go of the GIL signals the one condition variable, and who takes it the other. Where calls out of the
  // interpreter cannot be seen, neither can waits by a hook: nothing exact is built on these two then.
  const auto patch = PatchInterpreter("pthread_cond_signal", reinterpret_cast<void*>(&NoteSignal),
                                      reinterpret_cast<void*>(&pthread_cond_signal));
  Signals& signals = g_signals;
  if (patch.ok()) signals.next.store(reinterpret_cast<Signal>((*patch)->original()), std::memory_order_relaxed);
  signals.count = 0;
  signals.thread = pthread_self();
  signals.noting.store(patch.ok(), std::memory_order_release);

  const bool held = view.holder() == self;
  PyThreadState* state = PyEval_SaveThread();
  const bool released = view.holder() != self;
  PyEval_RestoreThread(state);

  signals.noting.store(false, std::memory_order_release);
  if (!held || !released || view.holder() != self) {
    return absl::NotFoundError("what looked like the GIL does not follow its release: an unknown layout");
  }
  const bool seen = patch.ok() && (*patch)->in_place();
  if (seen && !(signals.Have(view.cond_) && signals.Have(view.switch_cond_))) {
    return absl::NotFoundError(
        "the GIL's condition variables are not where its release signals them: an unknown layout");
  }
  return view;
}

}  // namespace trainperf
