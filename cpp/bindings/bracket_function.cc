#include "bindings/bracket_function.h"

#include <structmember.h>

#include <cstring>
#include <utility>

#include "bindings/c_function.h"
#include "bindings/c_type.h"
#include "bindings/marks_python.h"

namespace py = pybind11;

// CPython's own lock of an object; what it guards needs none where there is a GIL.
#ifdef Py_GIL_DISABLED
#define TRAINPERF_LOCK_OBJECT(object) Py_BEGIN_CRITICAL_SECTION(object)
#define TRAINPERF_UNLOCK_OBJECT() Py_END_CRITICAL_SECTION()
#else
#define TRAINPERF_LOCK_OBJECT(object) {
#define TRAINPERF_UNLOCK_OBJECT() }
#endif

namespace trainperf {
namespace {

PyObject* Know(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  BracketFunction& function = *AsBracketFunction(self);
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
    for (KnownThing& known : AsBracketFunction(self)->known) known = KnownThing{};
  }
  Py_RETURN_NONE;
}

PyObject* SwitchOff(PyObject* self, PyObject*) {
  SetOn(AsBracketFunction(self), false);
  return Forget(self, nullptr);
}

PyObject* SwitchOn(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "switch_on(slow, begin, end) takes three arguments");
    return nullptr;
  }
  if (AsBracketFunction(self)->vectorcall != nullptr) {
    PyErr_SetString(PyExc_TypeError, "switch_on() is for step_functions(): the others are made switched on");
    return nullptr;
  }
  SetField(AsBracketFunction(self), &AsBracketFunction(self)->slow, args[0]);
  SetMarks(AsBracketFunction(self), args[1], args[2]);
  SetOn(AsBracketFunction(self), true);
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
  BracketFunction& function = *AsBracketFunction(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* held : {function.original, function.begin, function.end, function.ask, function.slow, function.tick,
                         function.apart, function.before, function.after, function.dict}) {
    Py_VISIT(held);
  }
  return 0;
}

int Clear(PyObject* self) {
  BracketFunction& function = *AsBracketFunction(self);
  SetOn(&function, false);
  for (PyObject** held : {&function.original, &function.begin, &function.end, &function.ask, &function.slow,
                          &function.tick, &function.apart, &function.before, &function.after, &function.dict}) {
    SetField(&function, held, nullptr);
  }
  return 0;
}

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (AsBracketFunction(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
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

PyTypeObject* g_bracket_function_type = nullptr;

}  // namespace

void AddBracketFunctionType(py::module_* module) {
  g_bracket_function_type = AddType(module, "BracketFunction", &kSpec);
}

BracketFunction* NewBracketFunction(vectorcallfunc call) {
  BracketFunction* function = PyObject_GC_New(BracketFunction, g_bracket_function_type);
  if (function == nullptr) return nullptr;
  memset(reinterpret_cast<char*>(function) + sizeof(PyObject), 0, sizeof(BracketFunction) - sizeof(PyObject));
  function->vectorcall = call;
  return function;
}

PyObject* FinishBracketFunction(BracketFunction* function, bool on) {
  SetOn(function, on);
  PyObject_GC_Track(reinterpret_cast<PyObject*>(function));
  return reinterpret_cast<PyObject*>(function);
}

PyObject* HoldField(BracketFunction* function, PyObject** field) {
  (void)function;
  if (__atomic_load_n(field, __ATOMIC_RELAXED) == nullptr) return nullptr;
  PyObject* held = nullptr;
  TRAINPERF_LOCK_OBJECT(function);
  held = *field;
  Py_XINCREF(held);
  TRAINPERF_UNLOCK_OBJECT();
  return held;
}

PyObject* ExchangeField(BracketFunction* function, PyObject** field, PyObject* value) {
  (void)function;
  PyObject* before = nullptr;
  TRAINPERF_LOCK_OBJECT(function);
  before = *field;
  __atomic_store_n(field, value, __ATOMIC_RELAXED);
  TRAINPERF_UNLOCK_OBJECT();
  return before;
}

void SetField(BracketFunction* function, PyObject** field, PyObject* value) {
  Py_XINCREF(value);
  Py_XDECREF(ExchangeField(function, field, value));
}

void SetMarks(BracketFunction* function, PyObject* begin, PyObject* end) {
  SetField(function, &function->begin, IsOwnBegin(begin) ? nullptr : begin);
  SetField(function, &function->end, IsOwnEnd(end) ? nullptr : end);
}

}  // namespace trainperf
