// Types in plain C for Python, where an object through pybind11 would cost too much.

#ifndef TRAINPERF_BINDINGS_C_TYPE_H_
#define TRAINPERF_BINDINGS_C_TYPE_H_

#include <pybind11/pybind11.h>

namespace trainperf {

// Requires GIL. The type stays as long as the process: what is returned is borrowed.
inline PyTypeObject* AddType(pybind11::module_* module, const char* name, PyType_Spec* spec) {
  PyObject* type = PyType_FromSpec(spec);
  if (type == nullptr) throw pybind11::error_already_set();
  module->attr(name) = pybind11::handle(type);
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_C_TYPE_H_
