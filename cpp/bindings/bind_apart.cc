#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <utility>

#include "bindings/apart.h"
#include "bindings/bind.h"
#include "bindings/c_type.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

PyTypeObject* g_apart_type = nullptr;

bool OnItsThread(const ApartState& apart) { return PyThread_get_thread_ident() == apart.thread; }

void AddApart(ApartState* apart) {
  apart->ns += NowNs() - apart->since_ns;
  apart->fetched_ns += marks::FetchTimeHere() - apart->fetched_since_ns;
}

PyObject* NewApart(PyTypeObject* type, PyObject* args, PyObject* names) {
  if (PyTuple_GET_SIZE(args) != 0 || (names != nullptr && PyDict_GET_SIZE(names) != 0)) {
    return PyErr_Format(PyExc_TypeError, "%s() takes no arguments", type->tp_name);
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  AsApart(self)->evaluate = PyDict_New();
  if (AsApart(self)->evaluate != nullptr) return self;
  Py_DECREF(self);
  return nullptr;
}

int TraverseApart(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(AsApart(self)->evaluate);
  return 0;
}

// It holds numbers alone, and is in no cycle by them.
void DeallocApart(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_XDECREF(AsApart(self)->evaluate);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* PyBeginApart(PyObject* self, PyObject*) {
  BeginApart(AsApart(self));
  Py_RETURN_NONE;
}

PyObject* PyEndApart(PyObject* self, PyObject*) {
  EndApart(AsApart(self));
  Py_RETURN_NONE;
}

PyObject* GetEvaluate(PyObject* self, void*) {
  Py_INCREF(AsApart(self)->evaluate);
  return AsApart(self)->evaluate;
}

int SetEvaluate(PyObject* self, PyObject* value, void*) {
  if (value == nullptr || !PyDict_CheckExact(value)) {
    PyErr_SetString(PyExc_TypeError, "evaluate is a dict");
    return -1;
  }
  Py_INCREF(value);
  Py_DECREF(std::exchange(AsApart(self)->evaluate, value));
  return 0;
}

PyMethodDef kApartMethods[] = {
    {"begin", PyBeginApart, METH_NOARGS, "begin()"},
    {"end", PyEndApart, METH_NOARGS, "end()"},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kApartMembers[] = {
    {"thread", T_ULONG, offsetof(ApartState, thread), 0, nullptr},
    {"measured", T_PYSSIZET, offsetof(ApartState, measured), 0, nullptr},
    {"depth", T_PYSSIZET, offsetof(ApartState, depth), 0, nullptr},
    {"ns", T_LONGLONG, offsetof(ApartState, ns), 0, nullptr},
    {"since_ns", T_LONGLONG, offsetof(ApartState, since_ns), 0, nullptr},
    {"fetched_since_ns", T_LONGLONG, offsetof(ApartState, fetched_since_ns), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kApartGetSet[] = {
    {"evaluate", GetEvaluate, SetEvaluate, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kApartSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&NewApart)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocApart)},
    {Py_tp_traverse, reinterpret_cast<void*>(&TraverseApart)},
    {Py_tp_methods, kApartMethods},
    {Py_tp_members, kApartMembers},
    {Py_tp_getset, kApartGetSet},
    {0, nullptr},
};

PyType_Spec kApartSpec = {"trainperf._native.ApartState", sizeof(ApartState), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, kApartSlots};

}  // namespace

PyTypeObject* ApartType() { return g_apart_type; }

void BeginApart(ApartState* apart) {
  if (!OnItsThread(*apart)) return;
  if (apart->depth == 0) {
    apart->fetched_since_ns = marks::FetchTimeHere();
    apart->since_ns = NowNs();
  }
  ++apart->depth;
}

void EndApart(ApartState* apart) {
  if (apart->depth == 0 || !OnItsThread(*apart)) return;
  if (--apart->depth == 0) AddApart(apart);
}

void LeaveApart(ApartState* apart, Py_ssize_t depth) {
  if (PyDict_GET_SIZE(apart->evaluate) != 0) {
    PyObject* kept = PyDict_New();
    PyObject *module, *at;
    for (Py_ssize_t i = 0; kept != nullptr && PyDict_Next(apart->evaluate, &i, &module, &at) != 0;) {
      const Py_ssize_t was = PyLong_AsSsize_t(at);
      if (PyErr_Occurred() != nullptr || (was < depth && PyDict_SetItem(kept, module, at) != 0)) Py_CLEAR(kept);
    }
    if (kept != nullptr) Py_DECREF(std::exchange(apart->evaluate, kept));
    PyErr_Clear();
  }
  if (apart->depth > depth) {
    apart->depth = depth;
    if (depth == 0) AddApart(apart);
  }
}

int64_t ElsewhereNs(const ApartState& apart) { return apart.ns + marks::FetchTimeHere() - apart.fetched_ns; }

void BindApart(py::module_& module) { g_apart_type = AddType(&module, "ApartState", &kApartSpec); }

}  // namespace trainperf
