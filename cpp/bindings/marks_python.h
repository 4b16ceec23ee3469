// Which Python objects are the marks of bind_marks.cc: who knows them calls the core without Python between.

#ifndef TRAINPERF_BINDINGS_MARKS_PYTHON_H_
#define TRAINPERF_BINDINGS_MARKS_PYTHON_H_

#include <Python.h>

namespace trainperf {

bool IsOwnBegin(PyObject* function);  // _native.begin
bool IsOwnEnd(PyObject* function);    // _native.end

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_MARKS_PYTHON_H_
