/* The internal headers of 3.11 and 3.12 do not compile as C++, hence a C file. */

#include "trainperf/cpython/frame_locals.h"

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>

#if PY_VERSION_HEX >= 0x030D0000
#define TP_PROXY
#elif PY_VERSION_HEX < 0x030B0000
#define TP_PUBLIC_FRAME
#include <frameobject.h>
#elif defined(__has_include)
#if __has_include("internal/pycore_frame.h")
#define TP_INTERNAL_FRAME
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#endif
#endif

#if defined(TP_PUBLIC_FRAME) || defined(TP_INTERNAL_FRAME)

static int Put(PyObject* locals, PyObject* name, PyObject* value, int in_cell) {
  if (value != NULL && in_cell && PyCell_Check(value)) value = PyCell_GET(value);
  return value == NULL ? 0 : PyDict_SetItem(locals, name, value);
}

#endif

#ifdef TP_PUBLIC_FRAME

static int PutAll(PyObject* locals, PyObject* names, PyObject** values, int in_cell) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    if (Put(locals, PyTuple_GET_ITEM(names, i), values[i], in_cell) != 0) return -1;
  }
  return 0;
}

static int Fill(PyObject* locals, PyFrameObject* frame) {
  PyCodeObject* code = frame->f_code;
  PyObject** values = frame->f_localsplus;
  if (PutAll(locals, code->co_varnames, values, 0) != 0) return -1;
  values += PyTuple_GET_SIZE(code->co_varnames);
  if (PutAll(locals, code->co_cellvars, values, 1) != 0) return -1;
  return PutAll(locals, code->co_freevars, values + PyTuple_GET_SIZE(code->co_cellvars), 1);
}

#elif defined(TP_INTERNAL_FRAME)

static int Fill(PyObject* locals, PyFrameObject* frame) {
  _PyInterpreterFrame* inner = frame->f_frame;
  PyCodeObject* code = inner->f_code;
  for (int i = 0; i < code->co_nlocalsplus; ++i) {
    const _PyLocals_Kind kind = _PyLocals_GetKind(code->co_localspluskinds, i);
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    if (Put(locals, name, inner->localsplus[i], (kind & (CO_FAST_CELL | CO_FAST_FREE)) != 0) != 0) return -1;
  }
  return 0;
}

#elif defined(TP_PROXY)

static int Fill(PyObject* locals, PyFrameObject* frame) {
  PyObject* proxy = PyFrame_GetLocals(frame); /* it has no values of its own: PEP 667 */
  if (proxy == NULL) return -1;
  const int done = PyDict_Update(locals, proxy);
  Py_DECREF(proxy);
  return done;
}

#else

static int Fill(PyObject* locals, PyFrameObject* frame) {
  (void)locals, (void)frame;
  PyErr_SetString(PyExc_NotImplementedError, "this build of trainperf had no internal headers of CPython");
  return -1;
}

#endif

PyObject* TpFrameLocals(PyFrameObject* frame) {
  PyObject* locals = PyDict_New();
  if (locals == NULL) return NULL;
  PyCodeObject* code = PyFrame_GetCode(frame);
  const int of_function = (code->co_flags & CO_OPTIMIZED) != 0;
  Py_DECREF(code);
  if (!of_function || Fill(locals, frame) == 0) return locals;
  Py_DECREF(locals);
  return NULL;
}
