// Counts of denormal floats in a tensor's memory, for hooks/denormals.py: by NumPy it is ten times as long, most of it
// cold caches.

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bindings/bind.h"
#include "trainperf/probe/denormals.h"

namespace py = pybind11;

namespace trainperf {
namespace {

FloatKind KindOf(const std::string& name) {
  if (name == "float32") return FloatKind::kFloat32;
  if (name == "float64") return FloatKind::kFloat64;
  if (name == "bfloat16") return FloatKind::kBfloat16;
  throw py::value_error("floats of an unknown kind: " + name);
}

}  // namespace

void BindFloats(py::module_& module) {
  module.def(
      "count_floats",
      [](uintptr_t address, size_t elements, const std::string& kind, size_t blocks) {
        const FloatCounts counts = CountFloats(reinterpret_cast<const void*>(address), elements, KindOf(kind), blocks);
        return py::make_tuple(counts.looked_at, counts.denormal, counts.finite);
      },
      py::arg("address"), py::arg("elements"), py::arg("kind"), py::arg("blocks"), py::pos_only(),
      "(how many were looked at, how many of these are denormal, whether all are finite): of so many blocks of 16 "
      "elements, which lie evenly over all of the memory. `kind`: float32, float64 or bfloat16.");
}

}  // namespace trainperf
