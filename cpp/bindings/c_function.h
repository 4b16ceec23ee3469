// Functions in plain C for Python, where a call through pybind11 would cost too much.

#ifndef TRAINPERF_BINDINGS_C_FUNCTION_H_
#define TRAINPERF_BINDINGS_C_FUNCTION_H_

#include <Python.h>

namespace trainperf {

// For a PyMethodDef whose flags say how `function` is really called.
template <typename Function>
PyCFunction AsPyCFunction(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_C_FUNCTION_H_
