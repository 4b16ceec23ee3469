// What parts of a framework's loop cost, added up as they come and go: a callback's hook is some ten microseconds when
// its cost is added up in Python, most of it cold caches just after torch's kernels, and a step may have thirty.
//
//   apart = Apart()                   # of hooks/apart.py: an ApartState, of bind_apart.cc
//   meter = CostMeter(...)            # of integrations/costs.py: a StretchMeter(apart, begin, end, ...)
//   meter.enter(cost, meter.CALLBACK)
//   meter.leave()
//
// The Python classes above them have the words: what they are for stands there. Without a GIL it is the thread that
// guards a meter: only its own enters and leaves, and for an Apart begin() and end() look.

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "bindings/apart.h"
#include "bindings/bind.h"
#include "bindings/c_function.h"
#include "bindings/c_type.h"
#include "trainperf/base/clock.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

// The sums of one hook of one object.

struct StretchSums {
  PyObject_HEAD unsigned int number;  // of the object
  int64_t count;
  int64_t ns;
  int64_t own_ns;    // without what was measured inside of it
  int64_t other_ns;  // of that, what lies in the loop itself: in no phase of its own, and in no fetch
  int64_t named_ns;  // of own_ns, what keeps its name in every phase: collections, waits for the GIL or a CPU
  int64_t max_ns;    // of one call, without what is named or fetched
};

PyTypeObject* g_sums_type = nullptr;

PyMemberDef kSumsMembers[] = {
    {"number", T_UINT, offsetof(StretchSums, number), 0, nullptr},
    {"count", T_LONGLONG, offsetof(StretchSums, count), 0, nullptr},
    {"ns", T_LONGLONG, offsetof(StretchSums, ns), 0, nullptr},
    {"own_ns", T_LONGLONG, offsetof(StretchSums, own_ns), 0, nullptr},
    {"other_ns", T_LONGLONG, offsetof(StretchSums, other_ns), 0, nullptr},
    {"named_ns", T_LONGLONG, offsetof(StretchSums, named_ns), 0, nullptr},
    {"max_ns", T_LONGLONG, offsetof(StretchSums, max_ns), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kSumsSlots[] = {
    {Py_tp_members, kSumsMembers},
    {0, nullptr},
};

PyType_Spec kSumsSpec = {"trainperf._native.StretchSums", sizeof(StretchSums), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kSumsSlots};

// The meter.

enum StretchKind : int { kPlainStretch, kCallbackStretch, kLoggingStretch, kPhaseStretch, kStretchKinds };

struct Stretch {
  StretchSums* sums;  // owned; nullptr: it is not summed
  StretchKind kind;
  int phase;
  int64_t elsewhere_before_ns;  // -1: it lies in a phase of its own
  Py_ssize_t apart_depth;
  int64_t inner_ns;            // of what is inside
  int64_t inner_elsewhere_ns;  // and of that what was elsewhere
  int64_t inner_named_ns;      // or named
  marks::NamedTime named_before;
  int64_t fetched_before_ns;
  int64_t start_ns;
};

struct StretchMeter {
  PyObject_HEAD std::vector<Stretch>* stack;
  ApartState* apart;
  PyObject* begin;
  PyObject* end;
  PyObject* begin_phase;
  PyObject* end_phase;
  unsigned long thread;  // whose stretches they are; 0: it is closed
  char counting;         // a T_BOOL
};

StretchMeter* AsMeter(PyObject* object) { return reinterpret_cast<StretchMeter*>(object); }

constexpr long kNoObject = -1;

// False, with an exception set: only a stand-in for the marks can fail.
bool CallMark(PyObject* mark, long what, long object) {
  PyObject* done = PyObject_CallFunction(mark, object == kNoObject ? "l" : "ll", what, object);
  Py_XDECREF(done);
  return done != nullptr;
}

bool EnterStretch(StretchMeter* meter, StretchSums* sums, StretchKind kind, int phase) {
  const auto marked = [](const Stretch& s) { return s.kind == kCallbackStretch || s.kind == kPhaseStretch; };
  if (kind == kCallbackStretch && std::any_of(meter->stack->begin(), meter->stack->end(), marked)) {
    kind = kPlainStretch;  // inside of another callback, or of a checkpoint: its phase stays
  }
  ApartState* apart = meter->apart;
  // Before it is marked: where a stand-in for the mark is interrupted, unwind() is to know of it.
  try {
    meter->stack->push_back(
        {sums, kind, phase, apart->depth != 0 ? -1 : ElsewhereNs(*apart), apart->depth, 0, 0, 0, {}, 0, NowNs()});
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return false;
  }
  Py_XINCREF(sums);
  const size_t mine = meter->stack->size() - 1;
  bool done = true;
  switch (kind) {
    case kCallbackStretch:
      done = sums == nullptr || CallMark(meter->begin, static_cast<long>(Bracket::kCallback), sums->number);
      break;
    case kLoggingStretch:
      BeginApart(apart);
      done = CallMark(meter->begin, static_cast<long>(Bracket::kLogging), sums == nullptr ? 0 : sums->number);
      break;
    case kPhaseStretch:
      BeginApart(apart);
      done = CallMark(meter->begin_phase, phase, kNoObject);
      break;
    case kPlainStretch:
    case kStretchKinds:
      break;
  }
  apart->measured = static_cast<Py_ssize_t>(meter->stack->size());
  if (mine < meter->stack->size()) {
    Stretch& stretch = (*meter->stack)[mine];
    stretch.apart_depth = apart->depth;
    stretch.inner_ns = stretch.inner_elsewhere_ns = stretch.inner_named_ns = 0;
    stretch.named_before = marks::NamedTimeHere();
    stretch.fetched_before_ns = marks::FetchTimeHere();
    stretch.start_ns = NowNs();
  }
  return done;
}

void AddStretch(StretchSums* sums, const Stretch& stretch, int64_t ns, int64_t elsewhere_ns, int64_t named_ns) {
  const int64_t own_ns = ns - stretch.inner_ns;
  ++sums->count;
  sums->ns += ns;
  sums->own_ns += own_ns;
  sums->other_ns += std::max<int64_t>(0, own_ns - (elsewhere_ns - stretch.inner_elsewhere_ns));
  sums->named_ns += std::clamp<int64_t>(named_ns - stretch.inner_named_ns, 0, std::max<int64_t>(own_ns, 0));
  const int64_t named_in_ns = std::clamp<int64_t>(named_ns, 0, ns);
  const int64_t clear_ns = ns - std::clamp<int64_t>(marks::FetchTimeHere() - stretch.fetched_before_ns, 0, ns);
  // What is named may lie in fetches as well as beside them.
  const double beside = ns > 0 ? static_cast<double>(clear_ns) / static_cast<double>(ns) : 0.0;
  sums->max_ns = std::max(sums->max_ns, clear_ns - static_cast<int64_t>(static_cast<double>(named_in_ns) * beside));
}

// False, with an exception set, when a mark failed: the stretch is over all the same.
bool LeaveStretch(StretchMeter* meter) {
  if (meter->stack->empty()) return true;
  const Stretch stretch = meter->stack->back();
  const int64_t ns = NowNs() - stretch.start_ns;
  meter->stack->pop_back();
  ApartState* apart = meter->apart;
  apart->measured = static_cast<Py_ssize_t>(meter->stack->size());
  LeaveApart(apart, stretch.apart_depth);
  bool done = true;
  switch (stretch.kind) {
    case kCallbackStretch:
      done = CallMark(meter->end, static_cast<long>(Bracket::kCallback), kNoObject);
      break;
    case kLoggingStretch:
      done = CallMark(meter->end, static_cast<long>(Bracket::kLogging), kNoObject);
      EndApart(apart);
      break;
    case kPhaseStretch:
      done = CallMark(meter->end_phase, stretch.phase, kNoObject);
      EndApart(apart);
      break;
    case kPlainStretch:
    case kStretchKinds:
      break;
  }
  const int64_t elsewhere_ns =
      stretch.elsewhere_before_ns < 0 ? ns : std::max<int64_t>(0, ElsewhereNs(*apart) - stretch.elsewhere_before_ns);
  // Less than none: a watch has ended since, and what is counted began anew.
  const int64_t named_ns = std::max<int64_t>(0, marks::NamedTimeHere().Since(stretch.named_before));
  if (!meter->stack->empty()) {
    meter->stack->back().inner_ns += ns;
    meter->stack->back().inner_elsewhere_ns += elsewhere_ns;
    meter->stack->back().inner_named_ns += named_ns;
  }
  if (stretch.sums != nullptr) {
    if (meter->counting != 0) AddStretch(stretch.sums, stretch, ns, elsewhere_ns, named_ns);
    Py_DECREF(stretch.sums);
  }
  return done;
}

PyObject* PyEnterStretch(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count < 2 || count > 3 || (args[0] != Py_None && !PyObject_TypeCheck(args[0], g_sums_type))) {
    PyErr_SetString(PyExc_TypeError, "enter(sums, kind, phase=0): of the sums that it is added to, or None");
    return nullptr;
  }
  if (AsMeter(self)->apart == nullptr) {
    PyErr_SetString(PyExc_TypeError, "this StretchMeter was never made: its __init__ was not called");
    return nullptr;
  }
  const long kind = PyLong_AsLong(args[1]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const long phase = count == 3 ? PyLong_AsLong(args[2]) : 0;
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (kind < 0 || kind >= kStretchKinds || phase < 0 || phase >= kPhaseCount) {
    return PyErr_Format(PyExc_ValueError, "no such stretch: %ld, %ld", kind, phase);
  }
  auto* sums = args[0] == Py_None ? nullptr : reinterpret_cast<StretchSums*>(args[0]);
  if (!EnterStretch(AsMeter(self), sums, static_cast<StretchKind>(kind), static_cast<int>(phase))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* PyLeaveStretch(PyObject* self, PyObject*) {
  if (!LeaveStretch(AsMeter(self))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* PyUnwindStretches(PyObject* self, PyObject*) {
  while (!AsMeter(self)->stack->empty()) {
    if (!LeaveStretch(AsMeter(self))) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* PyInsideStretch(PyObject* self, PyObject* sums) {
  const std::vector<Stretch>& stack = *AsMeter(self)->stack;
  const auto its = [sums](const Stretch& s) { return reinterpret_cast<PyObject*>(s.sums) == sums; };
  return PyBool_FromLong(std::any_of(stack.begin(), stack.end(), its) ? 1 : 0);
}

PyObject* PyHere(PyObject* self, PyObject*) {
  return PyBool_FromLong(AsMeter(self)->thread == PyThread_get_thread_ident() ? 1 : 0);
}

PyObject* NewMeter(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  AsMeter(self)->stack = new (std::nothrow) std::vector<Stretch>();
  if (AsMeter(self)->stack != nullptr) return self;
  Py_DECREF(self);
  return PyErr_NoMemory();
}

int InitMeter(PyObject* self, PyObject* args, PyObject* names) {
  PyObject *apart, *begin, *end, *begin_phase, *end_phase;
  if (names != nullptr && PyDict_GET_SIZE(names) != 0) {
    PyErr_SetString(PyExc_TypeError, "StretchMeter() takes no keyword arguments");
    return -1;
  }
  if (PyArg_ParseTuple(args, "O!OOOO:StretchMeter", ApartType(), &apart, &begin, &end, &begin_phase, &end_phase) == 0) {
    return -1;
  }
  StretchMeter& meter = *AsMeter(self);
  if (meter.apart != nullptr) {
    PyErr_SetString(PyExc_TypeError, "StretchMeter() is made once");
    return -1;
  }
  for (PyObject* held : {apart, begin, end, begin_phase, end_phase}) Py_INCREF(held);
  meter.apart = AsApart(apart);
  meter.begin = begin;
  meter.end = end;
  meter.begin_phase = begin_phase;
  meter.end_phase = end_phase;
  meter.thread = PyThread_get_thread_ident();
  return 0;
}

int TraverseMeter(PyObject* self, visitproc visit, void* arg) {
  StretchMeter& meter = *AsMeter(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* held :
       {reinterpret_cast<PyObject*>(meter.apart), meter.begin, meter.end, meter.begin_phase, meter.end_phase}) {
    Py_VISIT(held);
  }
  return 0;
}

// No tp_clear: neither the core's marks nor the names that a Cost has lead back to it.
void DeallocMeter(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  StretchMeter& meter = *AsMeter(self);
  if (meter.stack != nullptr) {
    for (const Stretch& stretch : *meter.stack) Py_XDECREF(stretch.sums);
  }
  delete meter.stack;
  for (PyObject* held :
       {reinterpret_cast<PyObject*>(meter.apart), meter.begin, meter.end, meter.begin_phase, meter.end_phase}) {
    Py_XDECREF(held);
  }
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef kMeterMethods[] = {
    {"enter", AsPyCFunction(PyEnterStretch), METH_FASTCALL, "enter(sums, kind, phase=0, /)"},
    {"leave", PyLeaveStretch, METH_NOARGS, "leave()"},
    {"unwind", PyUnwindStretches, METH_NOARGS, "unwind()"},
    {"inside", PyInsideStretch, METH_O, "inside(sums, /)"},
    {"here", PyHere, METH_NOARGS, "here()"},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kMeterMembers[] = {
    {"thread", T_ULONG, offsetof(StretchMeter, thread), 0, nullptr},
    {"counting", T_BOOL, offsetof(StretchMeter, counting), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kMeterSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&NewMeter)},
    {Py_tp_init, reinterpret_cast<void*>(&InitMeter)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocMeter)},
    {Py_tp_traverse, reinterpret_cast<void*>(&TraverseMeter)},
    {Py_tp_methods, kMeterMethods},
    {Py_tp_members, kMeterMembers},
    {0, nullptr},
};

PyType_Spec kMeterSpec = {"trainperf._native.StretchMeter", sizeof(StretchMeter), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, kMeterSlots};

}  // namespace

void BindCosts(py::module_& module) {
  g_sums_type = AddType(&module, "StretchSums", &kSumsSpec);
  AddType(&module, "StretchMeter", &kMeterSpec);
  module.attr("StretchMeter").attr("PLAIN") = static_cast<int>(kPlainStretch);
  module.attr("StretchMeter").attr("CALLBACK") = static_cast<int>(kCallbackStretch);
  module.attr("StretchMeter").attr("LOGGING") = static_cast<int>(kLoggingStretch);
  module.attr("StretchMeter").attr("PHASE") = static_cast<int>(kPhaseStretch);
}

}  // namespace trainperf
