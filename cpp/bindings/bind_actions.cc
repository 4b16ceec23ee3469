// What a profiler's profile("[Callback]Mine.on_train_batch_end") returns, in C: a framework asks for some 30 of them a
// step, of which few mean anything to us. In Python each costs a step several times what the framework's own do, most
// of it cold caches (two frames, their code, an object) just after torch's kernels.
//
//   brackets[name] = _native.action_bracket(name, start, stop, thread)   # or action_bracket(name): nobody listens
//   profile = _native.action_lookup(brackets)                            # profile(name) is brackets[name]
//
// Used again and again, also within itself, and as a decorator. None of it changes once it is made.
//
// nothing(*args, **kwargs) is what TrainPerfCallback does at events of transformers' Trainer that mean nothing to it.

#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <utility>

#include "bindings/bind.h"
#include "bindings/c_function.h"

namespace py = pybind11;

namespace trainperf {
namespace {

struct ActionBracket {
  PyObject_HEAD PyObject* name;
  PyObject* start;  // nullptr: nobody listens
  PyObject* stop;
  unsigned long thread;  // that it is heard on; threading.get_ident()
};

ActionBracket* AsAction(PyObject* object) { return reinterpret_cast<ActionBracket*>(object); }

// False, with an exception set, when it raises.
bool Tell(PyObject* listener, unsigned long thread) {
  if (listener == nullptr || PyThread_get_thread_ident() != thread) return true;
  PyObject* done = PyObject_CallNoArgs(listener);
  Py_XDECREF(done);
  return done != nullptr;
}

PyObject* EnterAction(PyObject* self, PyObject*) {
  const ActionBracket& action = *AsAction(self);
  if (!Tell(action.start, action.thread)) return nullptr;
  Py_INCREF(action.name);
  return action.name;
}

PyObject* ExitAction(PyObject* self, PyObject* const*, Py_ssize_t) {
  const ActionBracket& action = *AsAction(self);
  if (!Tell(action.stop, action.thread)) return nullptr;
  Py_RETURN_NONE;
}

// As contextlib's own do it, which also keeps the function's name and signature.
PyObject* DecorateWithAction(PyObject* self, PyObject* args, PyObject* names) {
  if (names != nullptr || PyTuple_GET_SIZE(args) != 1) {
    PyErr_SetString(PyExc_TypeError, "an action decorates one function");
    return nullptr;
  }
  PyObject* contextlib = PyImport_ImportModule("contextlib");
  if (contextlib == nullptr) return nullptr;
  PyObject* decorator = PyObject_GetAttrString(contextlib, "ContextDecorator");
  Py_DECREF(contextlib);
  if (decorator == nullptr) return nullptr;
  PyObject* decorated = PyObject_CallMethod(decorator, "__call__", "OO", self, PyTuple_GET_ITEM(args, 0));
  Py_DECREF(decorator);
  return decorated;
}

PyObject* RecreateAction(PyObject* self, PyObject*) {
  Py_INCREF(self);
  return self;
}

int TraverseAction(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  for (PyObject* held : {AsAction(self)->name, AsAction(self)->start, AsAction(self)->stop}) Py_VISIT(held);
  return 0;
}

// The name stays: __enter__ may come after it.
int ClearAction(PyObject* self) {
  Py_XDECREF(std::exchange(AsAction(self)->start, nullptr));
  Py_XDECREF(std::exchange(AsAction(self)->stop, nullptr));
  return 0;
}

void DeallocAction(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  ClearAction(self);
  Py_XDECREF(AsAction(self)->name);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMethodDef kActionMethods[] = {
    {"__enter__", EnterAction, METH_NOARGS, "__enter__()"},
    {"__exit__", AsPyCFunction(ExitAction), METH_FASTCALL, "__exit__(*raised)"},
    {"_recreate_cm", RecreateAction, METH_NOARGS, nullptr},  // contextlib's decorator asks for it
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kActionMembers[] = {
    {"name", T_OBJECT, offsetof(ActionBracket, name), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kActionSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocAction)},
    {Py_tp_traverse, reinterpret_cast<void*>(&TraverseAction)},
    {Py_tp_clear, reinterpret_cast<void*>(&ClearAction)},
    {Py_tp_call, reinterpret_cast<void*>(&DecorateWithAction)},
    {Py_tp_methods, kActionMethods},
    {Py_tp_members, kActionMembers},
    {0, nullptr},
};

PyType_Spec kActionSpec = {"trainperf._native.ActionBracket", sizeof(ActionBracket), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, kActionSlots};

PyTypeObject* g_action_type = nullptr;

PyObject* MakeAction(PyObject*, PyObject* args) {
  PyObject *name = nullptr, *start = nullptr, *stop = nullptr;
  unsigned long thread = 0;
  if (PyArg_ParseTuple(args, "U|OOk:action_bracket", &name, &start, &stop, &thread) == 0) return nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  if (count != 1 && (count != 4 || PyCallable_Check(start) == 0 || PyCallable_Check(stop) == 0)) {
    PyErr_SetString(PyExc_TypeError,
                    "action_bracket(name, start, stop, thread): two functions, and who is to hear them");
    return nullptr;
  }
  ActionBracket* action = PyObject_GC_New(ActionBracket, g_action_type);
  if (action == nullptr) return nullptr;
  Py_INCREF(name);
  Py_XINCREF(start);
  Py_XINCREF(stop);
  action->name = name;
  action->start = start;
  action->stop = stop;
  action->thread = thread;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(action));
  return reinterpret_cast<PyObject*>(action);
}

// People name the argument, which a dictionary's own __getitem__ does not let them.
PyObject* LookUpAction(PyObject* brackets, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const bool named = names != nullptr && PyTuple_GET_SIZE(names) != 0;
  if (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "action_name") != 0) {
    return PyErr_Format(PyExc_TypeError, "profile() got an unexpected keyword argument %R", PyTuple_GET_ITEM(names, 0));
  }
  if (count + (named ? PyTuple_GET_SIZE(names) : 0) != 1) {
    PyErr_SetString(PyExc_TypeError, "profile(action_name) takes one argument");
    return nullptr;
  }
  return PyObject_GetItem(brackets, args[0]);
}

PyMethodDef kLookUpAction = {"profile", AsPyCFunction(LookUpAction), METH_FASTCALL | METH_KEYWORDS,
                             "profile($module, /, action_name)\n--\n\n"};

PyObject* ActionLookup(PyObject*, PyObject* brackets) { return PyCFunction_New(&kLookUpAction, brackets); }

PyObject* Nothing(PyObject*, PyObject*, PyObject*) { Py_RETURN_NONE; }

PyMethodDef kActionFunctions[] = {
    {"action_bracket", MakeAction, METH_VARARGS, "action_bracket(name, start=..., stop=..., thread=0, /)"},
    {"action_lookup", ActionLookup, METH_O, "action_lookup(brackets, /)"},
    {"nothing", AsPyCFunction(Nothing), METH_VARARGS | METH_KEYWORDS,
     "nothing($module, /, *args, **kwargs)\n--\n\nnothing(*args, **kwargs)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void BindActions(py::module_& module) {
  g_action_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kActionSpec));
  if (g_action_type == nullptr || PyModule_AddFunctions(module.ptr(), kActionFunctions) != 0) {
    throw py::error_already_set();
  }
  module.attr("ActionBracket") = py::handle(reinterpret_cast<PyObject*>(g_action_type));
}

}  // namespace trainperf
