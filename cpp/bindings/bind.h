// What module.cc wires together.

#ifndef TRAINPERF_BINDINGS_BIND_H_
#define TRAINPERF_BINDINGS_BIND_H_

#include <pybind11/pybind11.h>

#include "absl/status/status.h"

namespace trainperf {

void BindMarks(pybind11::module_& module);     // Requires GIL.
void BindBrackets(pybind11::module_& module);  // Requires GIL.
void BindCensus(pybind11::module_& module);    // Requires GIL.
void BindActions(pybind11::module_& module);   // Requires GIL.
void BindApart(pybind11::module_& module);     // Requires GIL.
void BindCosts(pybind11::module_& module);     // Requires GIL.
void BindFloats(pybind11::module_& module);    // Requires GIL.
void BindSession(pybind11::module_& module);   // Requires GIL.
void BindTrace(pybind11::module_& module);     // Requires GIL.

// The one table from status to Python exception. Requires GIL. Throws when `status` is not OK.
void ThrowIfError(const absl::Status& status);

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_BIND_H_
