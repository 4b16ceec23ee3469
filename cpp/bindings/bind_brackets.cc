// Functions of the loop with a bracket around them, as objects in C: a wrapper in Python costs a step several times
// what its marks do, most of it cold caches (its frame, its code, its cells) just after torch's kernels.
//
//   next = _native.fetch_function(original, slow, is_grad_enabled, begin, end)
//   Iterator.__next__ = next.as_method()
//   next.know(iterator, loader_id)     # from now on without Python; other iterators go to slow(iterator)
//
// They bind, pickle and look like the function that they stand for (functools.wraps sets what is to be seen), leave
// exceptions alone, and have no code that Dynamo could trace. `begin` and `end` are _native's own, or a stand-in's that
// is called. Requires GIL, all of it.

#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bindings/apart.h"
#include "bindings/bind.h"
#include "bindings/bracket_function.h"
#include "bindings/c_function.h"
#include "trainperf/base/clock.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/cuda/safe_points.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

constexpr double kMostTickS = 1;

// Without the GIL nothing guards `known`: then nobody reads or writes it, and everything goes the slow way.
const KnownThing* Find(const BracketFunction& function, PyObject* thing) {
  if (!kHasGil) return nullptr;
  for (const KnownThing& known : function.known) {
    if (known.thing == thing) return &known;
  }
  return nullptr;
}

PyObject* Garbage() {
  PyErr_SetString(PyExc_RuntimeError, "trainperf: this function was called after it was collected as garbage");
  return nullptr;
}

PyObject* CallOriginal(const BracketFunction& function, PyObject* const* args, size_t count, PyObject* names) {
  return function.original != nullptr ? PyObject_Vectorcall(function.original, args, count, names) : Garbage();
}

// A field's function: what it does may put another one there.
PyObject* CallHeld(BracketFunction* of, PyObject** field, PyObject* const* args, size_t count, PyObject* names) {
  PyObject* function = HoldField(of, field);
  if (function == nullptr) return Garbage();
  PyObject* result = PyObject_Vectorcall(function, args, count, names);
  Py_DECREF(function);
  return result;
}

// An error of ours is shown, and the user's function is called all the same. False: a Ctrl-C or an exit, which pass.
bool OnlyShown(PyObject* function) {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  PyErr_WriteUnraisable(function);
  return true;
}

// False, with an exception set: only a stand-in for the marks can fail.
bool Begin(BracketFunction* function, Bracket bracket, uint32_t object, uint8_t flags, int64_t entered_ns) {
  PyObject* begin = HoldField(function, &function->begin);
  if (begin == nullptr) {
    marks::BeginFromC(bracket, object, flags, entered_ns);
    return true;
  }
  PyObject* done = PyObject_CallFunction(begin, "iIii", static_cast<int>(bracket), object, -1, flags);
  Py_DECREF(begin);
  Py_XDECREF(done);
  return done != nullptr;
}

// Returns when. Leaves an exception that is set as it is.
int64_t End(BracketFunction* function, Bracket bracket, int value) {
  PyObject* end = HoldField(function, &function->end);
  if (end == nullptr) return marks::EndFromC(bracket, value, marks::EnterC());
  const py::error_scope kept;
  PyObject* done = PyObject_CallFunction(end, "ii", static_cast<int>(bracket), value);
  if (done == nullptr) PyErr_WriteUnraisable(end);
  Py_DECREF(end);
  Py_XDECREF(done);
  return NowNs();
}

PyObject* CallFetch(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  BracketFunction& function = *AsBracketFunction(self);
  if (!IsOn(function)) return CallOriginal(function, args, count, names);
  const KnownThing* known = PyVectorcall_NARGS(count) == 1 ? Find(function, args[0]) : nullptr;
  if (known == nullptr) return CallHeld(&function, &function.slow, args, count, names);
  const int64_t entered_ns = marks::EnterC();
  PyObject* enabled = PyObject_CallNoArgs(function.ask);
  if (enabled == nullptr ||
      !Begin(&function, Bracket::kFetch, known->number, enabled == Py_True ? 0 : kGradDisabled, entered_ns)) {
    Py_XDECREF(enabled);
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;  // Ctrl-C
    PyErr_Clear();
    return CallHeld(&function, &function.slow, args, count, names);  // meets the error too, and knows what to do
  }
  Py_DECREF(enabled);
  Py_INCREF(self);  // the watch may end in the middle
  PyObject* batch = PyObject_Vectorcall(function.original, args, count, names);
  int how = kFetchedBatch;
  if (batch == nullptr) how = PyErr_ExceptionMatches(PyExc_StopIteration) != 0 ? kFetchExhausted : kFetchRaised;
  End(&function, Bracket::kFetch, how);
  Py_DECREF(self);
  return batch;
}

// The exception that is set, as one that came while `earlier` (stolen; may be nullptr) was on its way.
void ComesAfter(PyObject* earlier) {
  if (earlier == nullptr) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyException_SetContext(value, earlier);
  PyErr_Restore(type, value, trace);
}

// Chores of the hooks, with whatever exception the backward left. A Ctrl-C in them goes before it.
PyObject* Tick(BracketFunction* function, PyObject* result) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* done = CallHeld(function, &function->tick, nullptr, 0, nullptr);
  const double again_s = done != nullptr ? PyFloat_AsDouble(done) : kMostTickS;
  const auto again_ns = static_cast<int64_t>(1e9 * std::clamp(again_s, 0.0, kMostTickS));
  __atomic_store_n(&function->next_tick_ns, NowNs() + again_ns, __ATOMIC_RELAXED);
  if (done != nullptr && PyErr_Occurred() != nullptr) Py_CLEAR(done);  // it returned no number
  if (done == nullptr && OnlyShown(function->tick)) {
    __atomic_store_n(&function->next_tick_ns, INT64_MAX, __ATOMIC_RELAXED);  // it would fail each time
    done = Py_NewRef(Py_None);
  }
  if (done != nullptr) {
    Py_DECREF(done);
    PyErr_Restore(type, value, trace);
    return result;
  }
  if (type != nullptr) {
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) PyException_SetTraceback(value, trace);
  }
  ComesAfter(value);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  Py_XDECREF(result);
  return nullptr;
}

// The number of the backward that is running already, or -1. False, with an exception set: it cannot be known.
bool AskForTask(BracketFunction* function, long* task) {
  if (function->ask_torch != nullptr) {
    *task = function->ask_torch();
    return true;
  }
  PyObject* number = CallHeld(function, &function->ask, nullptr, 0, nullptr);
  if (number == nullptr) return false;
  *task = PyLong_AsLong(number);
  Py_DECREF(number);
  return PyErr_Occurred() == nullptr;
}

PyObject* CallBackward(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  BracketFunction& function = *AsBracketFunction(self);
  if (!IsOn(function)) return CallOriginal(function, args, count, names);
  const int64_t entered_ns = marks::EnterC();
  long task = -1;
  if (!AskForTask(&function, &task)) {
    if (!OnlyShown(function.ask)) return nullptr;
    SetOn(&function, false);  // it would fail each time
    return CallOriginal(function, args, count, names);
  }
  if (task != -1) return CallOriginal(function, args, count, names);
  if (PyObject* first = ExchangeField(&function, &function.slow, nullptr)) {
    PyObject* done = PyObject_CallNoArgs(first);
    const bool goes_on = done != nullptr || OnlyShown(first);
    Py_XDECREF(done);
    Py_DECREF(first);
    if (!goes_on) return nullptr;
  }
  if (!Begin(&function, Bracket::kBackward, 0, 0, entered_ns)) return nullptr;
  Py_INCREF(self);
  PyObject* result = PyObject_Vectorcall(function.original, args, count, names);
  const int64_t now_ns = End(&function, Bracket::kBackward, 0);
  const bool change_due = SafePoints::Pass();
  if ((change_due || now_ns >= __atomic_load_n(&function.next_tick_ns, __ATOMIC_RELAXED)) && IsOn(function))
    result = Tick(&function, result);
  Py_DECREF(self);
  return result;
}

PyObject* CallLogging(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  BracketFunction& function = *AsBracketFunction(self);
  if (!IsOn(function)) return CallOriginal(function, args, count, names);
  const int64_t entered_ns = marks::EnterC();
  const bool own = function.begin == nullptr && function.end == nullptr;
  if (own) {
    marks::RecordBegins(entered_ns);
  } else if (!Begin(&function, Bracket::kLogging, 0, 0, entered_ns)) {
    return nullptr;
  }
  Py_INCREF(self);  // the watch may end in the middle
  BeginApart(AsApart(function.apart));
  PyObject* result = CallOriginal(function, args, count, names);
  EndApart(AsApart(function.apart));
  if (own) {
    marks::RecordEnds();
  } else {
    End(&function, Bracket::kLogging, 0);
  }
  Py_DECREF(self);
  return result;
}

// torch calls these with (optimizer, args, kwargs), and takes None for "nothing changed".
PyObject* BeforeStep(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  BracketFunction& function = *AsBracketFunction(self);
  if (!IsOn(function)) Py_RETURN_NONE;
  const int64_t entered_ns = marks::EnterC();
  const KnownThing* known = count == 3 ? Find(function, args[0]) : nullptr;
  if (known == nullptr) return CallHeld(&function, &function.slow, args, static_cast<size_t>(count), nullptr);
  if (!Begin(&function, Bracket::kOptimizer, known->number, 0, entered_ns)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* AfterStep(PyObject* self, PyObject* const*, Py_ssize_t) {
  BracketFunction& function = *AsBracketFunction(self);
  if (IsOn(function)) End(&function, Bracket::kOptimizer, 0);
  Py_RETURN_NONE;
}

PyObject* FetchFunction(PyObject*, PyObject* args) {
  PyObject *original, *slow, *ask, *begin, *end;
  if (PyArg_ParseTuple(args, "OOOOO:fetch_function", &original, &slow, &ask, &begin, &end) == 0) return nullptr;
  BracketFunction* function = NewBracketFunction(&CallFetch);
  if (function == nullptr) return nullptr;
  SetField(function, &function->original, original);
  SetField(function, &function->slow, slow);
  SetField(function, &function->ask, ask);
  SetMarks(function, begin, end);
  return FinishBracketFunction(function, true);
}

PyObject* BackwardFunction(PyObject*, PyObject* args) {
  PyObject *original, *first, *ask, *tick, *begin, *end;
  unsigned long long address = 0;
  if (PyArg_ParseTuple(args, "OOOOOO|K:backward_function", &original, &first, &ask, &tick, &begin, &end, &address) ==
      0) {
    return nullptr;
  }
  BracketFunction* function = NewBracketFunction(&CallBackward);
  if (function == nullptr) return nullptr;
  SetField(function, &function->original, original);
  SetField(function, &function->slow, first);
  SetField(function, &function->ask, ask);
  SetField(function, &function->tick, tick);
  function->ask_torch = reinterpret_cast<int (*)()>(static_cast<uintptr_t>(address));
  SetMarks(function, begin, end);
  return FinishBracketFunction(function, true);
}

PyObject* LoggingFunction(PyObject*, PyObject* args) {
  PyObject *original, *apart, *begin, *end;
  if (PyArg_ParseTuple(args, "OO!OO:logging_function", &original, ApartType(), &apart, &begin, &end) == 0) {
    return nullptr;
  }
  BracketFunction* function = NewBracketFunction(&CallLogging);
  if (function == nullptr) return nullptr;
  SetField(function, &function->original, original);
  SetField(function, &function->apart, apart);
  SetMarks(function, begin, end);
  return FinishBracketFunction(function, true);
}

PyMethodDef kBeforeStep = {"before_step", AsPyCFunction(BeforeStep), METH_FASTCALL, nullptr};
PyMethodDef kAfterStep = {"after_step", AsPyCFunction(AfterStep), METH_FASTCALL, nullptr};

PyObject* StepFunctions(PyObject*, PyObject*) {
  BracketFunction* function = NewBracketFunction(nullptr);
  if (function == nullptr) return nullptr;
  PyObject* self = FinishBracketFunction(function, false);
  function->before = PyCFunction_New(&kBeforeStep, self);
  function->after = PyCFunction_New(&kAfterStep, self);
  if (function->before != nullptr && function->after != nullptr) return self;
  Py_DECREF(self);
  return nullptr;
}

PyMethodDef kBracketFunctions[] = {
    {"fetch_function", FetchFunction, METH_VARARGS, "fetch_function(original, slow, is_grad_enabled, begin, end, /)"},
    {"backward_function", BackwardFunction, METH_VARARGS,
     "backward_function(original, first, graph_task, tick, begin, end, graph_task_address=0, /)"},
    {"logging_function", LoggingFunction, METH_VARARGS, "logging_function(original, apart, begin, end, /)"},
    {"step_functions", StepFunctions, METH_NOARGS, "step_functions()"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void BindBrackets(py::module_& module) {
  AddBracketFunctionType(&module);
  if (PyModule_AddFunctions(module.ptr(), kBracketFunctions) != 0) throw py::error_already_set();
}

}  // namespace trainperf