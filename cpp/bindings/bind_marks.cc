// The functions that hooks call at every bracket. Plain CPython calls, since pybind11's dispatch costs more than the
// mark.

#include <Python.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "bindings/bind.h"
#include "bindings/c_function.h"
#include "bindings/marks_python.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/cuda/safe_points.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

// Returns whether args[i], when given, is an int that fits.
bool ParseInt(PyObject* const* args, Py_ssize_t count, Py_ssize_t i, int64_t* value) {
  if (i >= count) return true;
  *value = PyLong_AsLongLong(args[i]);
  return *value != -1 || PyErr_Occurred() == nullptr;
}

bool ParseBounded(PyObject* const* args, Py_ssize_t count, int bound, const char* what, int64_t* value) {
  if (count < 1) {
    PyErr_Format(PyExc_TypeError, "%s expected", what);
    return false;
  }
  if (!ParseInt(args, count, 0, value)) return false;
  if (*value < 0 || *value >= bound) {
    PyErr_Format(PyExc_ValueError, "no such %s: %lld", what, static_cast<long long>(*value));
    return false;
  }
  return true;
}

PyObject* PyBegin(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t bracket = 0, object = 0, value = -1, flags = 0;
  if (!ParseBounded(args, count, kBracketCount, "bracket", &bracket) || !ParseInt(args, count, 1, &object) ||
      !ParseInt(args, count, 2, &value) || !ParseInt(args, count, 3, &flags)) {
    return nullptr;
  }
  marks::Begin(static_cast<Bracket>(bracket), static_cast<uint32_t>(object), value,
               static_cast<uint8_t>(flags & kGradDisabled));
  Py_RETURN_NONE;
}

PyObject* PyEnd(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t bracket = 0, value = 0;
  if (!ParseBounded(args, count, kBracketCount, "bracket", &bracket) || !ParseInt(args, count, 1, &value)) {
    return nullptr;
  }
  marks::End(static_cast<Bracket>(bracket), value);
  Py_RETURN_NONE;
}

PyObject* PyBeginPhase(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t phase = 0;
  if (!ParseBounded(args, count, kPhaseCount, "phase", &phase)) return nullptr;
  marks::Begin(Bracket::kUserPhase, 0, 0, 0, static_cast<Phase>(phase));
  Py_RETURN_NONE;
}

PyObject* PyEndPhase(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t phase = 0;
  if (!ParseBounded(args, count, kPhaseCount, "phase", &phase)) return nullptr;
  marks::End(Bracket::kUserPhase, 0, static_cast<Phase>(phase));
  Py_RETURN_NONE;
}

PyObject* PyStep(PyObject*, PyObject*) {
  marks::Step();
  return PyBool_FromLong(SafePoints::Pass());
}

PyObject* PyChangeDue(PyObject*, PyObject*) { return PyBool_FromLong(SafePoints::IsDue()); }

PyObject* PyMute(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int64_t on = 0;
  if (!ParseBounded(args, count, 2, "switch", &on)) return nullptr;
  marks::Mute(on != 0);
  Py_RETURN_NONE;
}

// info[key] as an int; -1 when it is not there.
int64_t InfoInt(PyObject* info, const char* key) {
  if (!PyDict_Check(info)) return -1;
  PyObject* item = PyDict_GetItemString(info, key);
  if (item == nullptr || !PyLong_Check(item)) return -1;
  return PyLong_AsLongLong(item);
}

PyObject* PyFetchValue(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4) {
    PyErr_SetString(PyExc_TypeError, "fetch_value(how, worker, reading, wait_ns) takes four arguments");
    return nullptr;
  }
  int64_t values[4];
  for (Py_ssize_t i = 0; i < count; ++i) {
    values[i] = PyLong_AsLongLong(args[i]);
    if (values[i] == -1 && PyErr_Occurred() != nullptr) return nullptr;
  }
  const auto worker = static_cast<int32_t>(std::clamp<int64_t>(values[1], -1, INT32_MAX));
  const auto reading = static_cast<int32_t>(std::clamp<int64_t>(values[2], 0, INT32_MAX));
  const Awaited awaited{worker, reading, std::max<int64_t>(values[3], 0)};
  return PyLong_FromLongLong(FetchValue(static_cast<FetchEnd>(values[0] & 0xff), awaited));
}

PyObject* PyGcCallback(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "gc_callback(phase, info) takes two arguments");
    return nullptr;
  }
  const char* phase = PyUnicode_Check(args[0]) ? PyUnicode_AsUTF8(args[0]) : nullptr;
  if (phase == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "phase must be a string");
    return nullptr;
  }
  if (strcmp(phase, "start") == 0) {
    marks::CollectionBegins(InfoInt(args[1], "generation"));
  } else {
    marks::CollectionEnds(InfoInt(args[1], "collected"));
  }
  Py_RETURN_NONE;
}

PyMethodDef kMarkFunctions[] = {
    {"begin", AsPyCFunction(PyBegin), METH_FASTCALL, "begin(bracket, object=0, value=-1, flags=0, /)"},
    {"end", AsPyCFunction(PyEnd), METH_FASTCALL, "end(bracket, value=0, /)"},
    {"begin_phase", AsPyCFunction(PyBeginPhase), METH_FASTCALL, "begin_phase(phase, /)"},
    {"end_phase", AsPyCFunction(PyEndPhase), METH_FASTCALL, "end_phase(phase, /)"},
    {"step", AsPyCFunction(PyStep), METH_NOARGS, "step(): whether change_due()"},
    {"change_due", PyChangeDue, METH_NOARGS, "change_due()"},
    {"mute", AsPyCFunction(PyMute), METH_FASTCALL, "mute(on, /)"},
    {"fetch_value", AsPyCFunction(PyFetchValue), METH_FASTCALL,
     "fetch_value(how, worker, reading, wait_ns, /): for end(FETCH)"},
    {"gc_callback", AsPyCFunction(PyGcCallback), METH_FASTCALL, "gc_callback(phase, info, /): for gc.callbacks"},
    {nullptr, nullptr, 0, nullptr},
};

uint64_t TstateIdOfThisThread() {
  PyThreadState* state = PyGILState_GetThisThreadState();  // also while this thread waits for the GIL
  return state != nullptr ? PyThreadState_GetID(state) : 0;
}

bool IsFunction(PyObject* object, PyCFunction function) {
  return PyCFunction_Check(object) != 0 && PyCFunction_GET_FUNCTION(object) == function;
}

}  // namespace

bool IsOwnBegin(PyObject* function) { return IsFunction(function, AsPyCFunction(PyBegin)); }
bool IsOwnEnd(PyObject* function) { return IsFunction(function, AsPyCFunction(PyEnd)); }

void BindMarks(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), kMarkFunctions) != 0) throw py::error_already_set();
  marks::SetIdentity(&TstateIdOfThisThread);
  pthread_atfork(nullptr, nullptr, [] { marks::Disable(); });

  const auto add = [&](const char* name, Bracket bracket) { module.attr(name) = static_cast<int>(bracket); };
  add("FETCH", Bracket::kFetch);
  add("LOADER_START", Bracket::kLoaderStart);
  add("BACKWARD", Bracket::kBackward);
  add("OPTIMIZER", Bracket::kOptimizer);
  add("CHECKPOINT", Bracket::kCheckpoint);
  add("LOGGING", Bracket::kLogging);
  add("EVAL", Bracket::kEval);
  add("GC", Bracket::kGc);
  add("COMPILE", Bracket::kCompile);
  add("CALLBACK", Bracket::kCallback);
  module.attr("GRAD_DISABLED") = static_cast<int>(kGradDisabled);
  module.attr("FETCHED_BATCH") = static_cast<int>(kFetchedBatch);
  module.attr("FETCH_EXHAUSTED") = static_cast<int>(kFetchExhausted);
  module.attr("FETCH_RAISED") = static_cast<int>(kFetchRaised);
  module.attr("FETCHED_BEHIND") = static_cast<int>(kFetchedBehind);
}

}  // namespace trainperf
