// trainperf._native: wiring only. One bind_*.cc per concept.

#include <pybind11/pybind11.h>

#include "bindings/bind.h"
#include "bindings/release_gil.h"
#include "trainperf/event/names.h"

namespace py = pybind11;

namespace {

template <size_t N>
py::tuple TupleOf(const std::array<const char*, N>& names) {
  py::tuple tuple(N);
  for (size_t i = 0; i < N; ++i) tuple[i] = names[i];
  return tuple;
}

}  // namespace

// Without mod_gil_not_used, importing the module would turn the GIL back on in a free-threaded interpreter.
PYBIND11_MODULE(_native, module, py::mod_gil_not_used()) {
  module.doc() = "The compiled core. Private: use trainperf.watch() and trainperf.open().";
  module.attr("VERSION") = TRAINPERF_VERSION;
  module.attr("STUB") = TRAINPERF_STUB;
  module.attr("PHASES") = TupleOf(trainperf::kPhaseNames);
  module.attr("CAUSES") = TupleOf(trainperf::kCauseNames);
  module.attr("MECHANISMS") = TupleOf(trainperf::kMechanismNames);
  trainperf::BindMarks(module);
  trainperf::BindBrackets(module);
  trainperf::BindCensus(module);
  trainperf::BindActions(module);
  trainperf::BindApart(module);
  trainperf::BindCosts(module);
  trainperf::BindFloats(module);
  trainperf::BindSession(module);
  trainperf::BindTrace(module);
  py::module_::import("atexit").attr("register")(py::cpp_function(&trainperf::GiveGilBeforeExit));
}
