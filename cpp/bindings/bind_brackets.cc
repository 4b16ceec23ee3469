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
#include <structmember.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bindings/bind.h"
#include "bindings/c_function.h"
#include "bindings/marks_python.h"
#include "trainperf/base/clock.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

constexpr int64_t kTickNs = 100'000'000;  // as hooks/context.py has it
constexpr size_t kKnown = 4;              // loaders that are zipped, optimizers of a GAN

struct Known {
  PyObject* thing;  // borrowed: who tells us of it also tells us when it goes
  uint32_t number;
};

// What a call reads stands first, and together.
struct BracketFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  bool on;
  PyObject* original;
  PyObject* begin;  // nullptr: our own, called without Python
  PyObject* end;
  PyObject* ask;       // is_grad_enabled(); the number of the backward that is running already, or -1
  int (*ask_torch)();  // the same, without the 1 us that the way through Python takes in cold caches; or nullptr
  PyObject* slow;      // for what is not known; for a backward: called once, before the first
  PyObject* tick;
  int64_t next_tick_ns;
  size_t next_known;
  Known known[kKnown];
  PyObject* before;  // of an optimizer's step: the two functions, which have no object of this type around them
  PyObject* after;
  PyObject* dict;
  PyObject* weak_references;
};

BracketFunction* Self(PyObject* object) { return reinterpret_cast<BracketFunction*>(object); }

#ifdef Py_GIL_DISABLED
constexpr bool kHasGil = false;
#else
constexpr bool kHasGil = true;
#endif

// Without the GIL nothing guards `known`: then nobody reads or writes it, and everything goes the slow way.
const Known* Find(const BracketFunction& function, PyObject* thing) {
  if (!kHasGil) return nullptr;
  for (const Known& known : function.known) {
    if (known.thing == thing) return &known;
  }
  return nullptr;
}

PyObject* CallOriginal(const BracketFunction& function, PyObject* const* args, size_t count, PyObject* names) {
  if (function.original != nullptr) return PyObject_Vectorcall(function.original, args, count, names);
  PyErr_SetString(PyExc_RuntimeError, "trainperf: this function was called after it was collected as garbage");
  return nullptr;
}

// Returns what was there, and gives the caller its reference.
PyObject* Exchange(PyObject** field, PyObject* value) {
  return kHasGil ? std::exchange(*field, value) : __atomic_exchange_n(field, value, __ATOMIC_ACQ_REL);
}

void Set(PyObject** field, PyObject* value) {
  Py_XINCREF(value);
  Py_XDECREF(Exchange(field, value));
}

// A field's function: what it does may put another one there.
PyObject* CallHeld(PyObject* function, PyObject* const* args, size_t count, PyObject* names) {
  Py_INCREF(function);
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
bool Begin(const BracketFunction& function, Bracket bracket, uint32_t object, uint8_t flags, int64_t entered_ns) {
  if (function.begin == nullptr) {
    marks::BeginFromC(bracket, object, flags, entered_ns);
    return true;
  }
  PyObject* done = PyObject_CallFunction(function.begin, "iIii", static_cast<int>(bracket), object, -1, flags);
  Py_XDECREF(done);
  return done != nullptr;
}

// Returns when. Leaves an exception that is set as it is.
int64_t End(const BracketFunction& function, Bracket bracket, int value) {
  if (function.end == nullptr) return marks::EndFromC(bracket, value, marks::EnterC());
  const py::error_scope kept;
  PyObject* done = PyObject_CallFunction(function.end, "ii", static_cast<int>(bracket), value);
  if (done == nullptr) PyErr_WriteUnraisable(function.end);
  Py_XDECREF(done);
  return NowNs();
}

PyObject* CallFetch(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  BracketFunction& function = *Self(self);
  if (!function.on) return CallOriginal(function, args, count, names);
  const Known* known = PyVectorcall_NARGS(count) == 1 ? Find(function, args[0]) : nullptr;
  if (known == nullptr) return CallHeld(function.slow, args, count, names);
  const int64_t entered_ns = marks::EnterC();
  PyObject* enabled = PyObject_CallNoArgs(function.ask);
  if (enabled == nullptr ||
      !Begin(function, Bracket::kFetch, known->number, enabled == Py_True ? 0 : kGradDisabled, entered_ns)) {
    Py_XDECREF(enabled);
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;  // Ctrl-C
    PyErr_Clear();
    return CallHeld(function.slow, args, count, names);  // meets the error too, and knows what to do
  }
  Py_DECREF(enabled);
  Py_INCREF(self);  // the watch may end in the middle
  PyObject* batch = PyObject_Vectorcall(function.original, args, count, names);
  int how = kFetchedBatch;
  if (batch == nullptr) how = PyErr_ExceptionMatches(PyExc_StopIteration) != 0 ? kFetchExhausted : kFetchRaised;
  End(function, Bracket::kFetch, how);
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
  PyObject* done = CallHeld(function->tick, nullptr, 0, nullptr);
  function->next_tick_ns = NowNs() + kTickNs;
  if (done == nullptr && OnlyShown(function->tick)) {
    function->next_tick_ns = INT64_MAX;  // it would fail each time
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
bool AskForTask(const BracketFunction& function, long* task) {
  if (function.ask_torch != nullptr) {
    *task = function.ask_torch();
    return true;
  }
  PyObject* number = CallHeld(function.ask, nullptr, 0, nullptr);
  if (number == nullptr) return false;
  *task = PyLong_AsLong(number);
  Py_DECREF(number);
  return PyErr_Occurred() == nullptr;
}

PyObject* CallBackward(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  BracketFunction& function = *Self(self);
  if (!function.on) return CallOriginal(function, args, count, names);
  const int64_t entered_ns = marks::EnterC();
  long task = -1;
  if (!AskForTask(function, &task)) {
    if (!OnlyShown(function.ask)) return nullptr;
    function.on = false;  // it would fail each time
    return CallOriginal(function, args, count, names);
  }
  if (task != -1) return CallOriginal(function, args, count, names);
  if (PyObject* first = Exchange(&function.slow, nullptr)) {
    PyObject* done = PyObject_CallNoArgs(first);
    const bool goes_on = done != nullptr || OnlyShown(first);
    Py_XDECREF(done);
    Py_DECREF(first);
    if (!goes_on) return nullptr;
  }
  if (!Begin(function, Bracket::kBackward, 0, 0, entered_ns)) return nullptr;
  Py_INCREF(self);
  PyObject* result = PyObject_Vectorcall(function.original, args, count, names);
  const int64_t now_ns = End(function, Bracket::kBackward, 0);
  if (now_ns >= function.next_tick_ns && function.on) result = Tick(&function, result);
  Py_DECREF(self);
  return result;
}

// torch calls these with (optimizer, args, kwargs), and takes None for "nothing changed".
PyObject* BeforeStep(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const BracketFunction& function = *Self(self);
  if (!function.on) Py_RETURN_NONE;
  const int64_t entered_ns = marks::EnterC();
  const Known* known = count == 3 ? Find(function, args[0]) : nullptr;
  if (known == nullptr) return CallHeld(function.slow, args, static_cast<size_t>(count), nullptr);
  if (!Begin(function, Bracket::kOptimizer, known->number, 0, entered_ns)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* AfterStep(PyObject* self, PyObject* const*, Py_ssize_t) {
  const BracketFunction& function = *Self(self);
  if (function.on) End(function, Bracket::kOptimizer, 0);
  Py_RETURN_NONE;
}

// What Python calls of them.

PyObject* Know(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  BracketFunction& function = *Self(self);
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "know(thing, number) takes two arguments");
    return nullptr;
  }
  const unsigned long number = PyLong_AsUnsignedLong(args[1]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (kHasGil) {
    function.known[function.next_known++ % kKnown] = {args[0], static_cast<uint32_t>(number)};
  }
  Py_RETURN_NONE;
}

PyObject* Forget(PyObject* self, PyObject*) {
  if (kHasGil) {
    for (Known& known : Self(self)->known) known = Known{};
  }
  Py_RETURN_NONE;
}

PyObject* SwitchOff(PyObject* self, PyObject*) {
  Self(self)->on = false;
  return Forget(self, nullptr);
}

void SetMarks(BracketFunction* function, PyObject* begin, PyObject* end) {
  Set(&function->begin, IsOwnBegin(begin) ? nullptr : begin);
  Set(&function->end, IsOwnEnd(end) ? nullptr : end);
}

PyObject* SwitchOn(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "switch_on(slow, begin, end) takes three arguments");
    return nullptr;
  }
  if (Self(self)->vectorcall != nullptr) {
    PyErr_SetString(PyExc_TypeError, "switch_on() is for step_functions(): the others are made switched on");
    return nullptr;
  }
  Set(&Self(self)->slow, args[0]);
  SetMarks(Self(self), args[1], args[2]);
  Self(self)->on = true;
  return Forget(self, nullptr);  // another watch has other numbers
}

// Pickled and copied by name, as functions are.
PyObject* Reduce(PyObject* self, PyObject*) {
  PyObject* name = PyObject_GetAttrString(self, "__qualname__");
  if (name == nullptr || PyUnicode_Check(name)) return name;
  PyErr_Format(PyExc_TypeError, "__qualname__ of a bracket function must be a string, not %R", name);
  Py_DECREF(name);
  return nullptr;
}

// For the dictionary of a class. There Dynamo takes an object of a type that it does not know for a plain value, and
// compiles `it.__next__()` to a call without `it`; of an instancemethod it knows that it binds.
PyObject* AsMethod(PyObject* self, PyObject*) { return PyInstanceMethod_New(self); }

PyObject* Repr(PyObject* self) {
  PyObject* name = PyObject_GetAttrString(self, "__qualname__");
  if (name == nullptr) {
    PyErr_Clear();
    return PyUnicode_FromFormat("<bracket function at %p>", self);
  }
  PyObject* text = PyUnicode_FromFormat("<function %S at %p>", name, self);
  Py_DECREF(name);
  return text;
}

PyObject* Bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, object);
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  BracketFunction& function = *Self(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* held : {function.original, function.begin, function.end, function.ask, function.slow, function.tick,
                         function.before, function.after, function.dict}) {
    Py_VISIT(held);
  }
  return 0;
}

int Clear(PyObject* self) {
  BracketFunction& function = *Self(self);
  function.on = false;
  for (PyObject** held : {&function.original, &function.begin, &function.end, &function.ask, &function.slow,
                          &function.tick, &function.before, &function.after, &function.dict}) {
    Set(held, nullptr);
  }
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (Self(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  Clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMethodDef kBracketMethods[] = {
    {"know", AsPyCFunction(Know), METH_FASTCALL, "know(thing, number, /): who says so calls forget() before it dies"},
    {"forget", Forget, METH_NOARGS, "forget(): all that it knows"},
    {"switch_on", AsPyCFunction(SwitchOn), METH_FASTCALL, "switch_on(slow, begin, end, /)"},
    {"switch_off", SwitchOff, METH_NOARGS, "switch_off(): from now on it only passes through"},
    {"as_method", AsMethod, METH_NOARGS, "as_method(): as it is put into a class"},
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BracketFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(BracketFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BracketFunction, weak_references), READONLY, nullptr},
    {"slow", T_OBJECT, offsetof(BracketFunction, slow), READONLY, nullptr},
    {"before", T_OBJECT, offsetof(BracketFunction, before), READONLY, nullptr},
    {"after", T_OBJECT, offsetof(BracketFunction, after), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kGetSet[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&Dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(&Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&Clear)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(&Bind)},
    {Py_tp_repr, reinterpret_cast<void*>(&Repr)},
    {Py_tp_methods, kBracketMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};

PyType_Spec kSpec = {"trainperf._native.BracketFunction", sizeof(BracketFunction), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                         Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     kSlots};

PyTypeObject* g_type = nullptr;

BracketFunction* Make(vectorcallfunc call) {
  BracketFunction* function = PyObject_GC_New(BracketFunction, g_type);
  if (function == nullptr) return nullptr;
  memset(reinterpret_cast<char*>(function) + sizeof(PyObject), 0, sizeof(BracketFunction) - sizeof(PyObject));
  function->vectorcall = call;
  return function;
}

PyObject* Finished(BracketFunction* function, bool on) {
  function->on = on;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(function));
  return reinterpret_cast<PyObject*>(function);
}

PyObject* FetchFunction(PyObject*, PyObject* args) {
  PyObject *original, *slow, *ask, *begin, *end;
  if (PyArg_ParseTuple(args, "OOOOO:fetch_function", &original, &slow, &ask, &begin, &end) == 0) return nullptr;
  BracketFunction* function = Make(&CallFetch);
  if (function == nullptr) return nullptr;
  Set(&function->original, original);
  Set(&function->slow, slow);
  Set(&function->ask, ask);
  SetMarks(function, begin, end);
  return Finished(function, true);
}

PyObject* BackwardFunction(PyObject*, PyObject* args) {
  PyObject *original, *first, *ask, *tick, *begin, *end;
  unsigned long long address = 0;
  if (PyArg_ParseTuple(args, "OOOOOO|K:backward_function", &original, &first, &ask, &tick, &begin, &end, &address) ==
      0) {
    return nullptr;
  }
  BracketFunction* function = Make(&CallBackward);
  if (function == nullptr) return nullptr;
  Set(&function->original, original);
  Set(&function->slow, first);
  Set(&function->ask, ask);
  Set(&function->tick, tick);
  function->ask_torch = reinterpret_cast<int (*)()>(static_cast<uintptr_t>(address));
  SetMarks(function, begin, end);
  return Finished(function, true);
}

PyMethodDef kBeforeStep = {"before_step", AsPyCFunction(BeforeStep), METH_FASTCALL, nullptr};
PyMethodDef kAfterStep = {"after_step", AsPyCFunction(AfterStep), METH_FASTCALL, nullptr};

PyObject* StepFunctions(PyObject*, PyObject*) {
  BracketFunction* function = Make(nullptr);
  if (function == nullptr) return nullptr;
  PyObject* self = Finished(function, false);
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
    {"step_functions", StepFunctions, METH_NOARGS, "step_functions()"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void BindBrackets(py::module_& module) {
  g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (g_type == nullptr || PyModule_AddFunctions(module.ptr(), kBracketFunctions) != 0) throw py::error_already_set();
  module.attr("BracketFunction") = py::handle(reinterpret_cast<PyObject*>(g_type));
}

}  // namespace trainperf
