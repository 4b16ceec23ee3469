// analyze_trace(): a torch.profiler trace to a run file.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <map>
#include <string>

#include "bindings/bind.h"
#include "bindings/release_gil.h"
#include "trainperf/trace/analyze.h"

namespace py = pybind11;

namespace trainperf {
namespace {

constexpr std::chrono::milliseconds kTellEvery(100);

py::dict Analyze(const std::string& path, const std::string& output, bool overwrite, int threads,
                 const std::map<std::string, std::string>& meta, const py::object& progress) {
  AnalyzeOptions options;
  options.output = output;
  options.overwrite = overwrite;
  options.threads = threads;
  options.meta = meta;
  auto told = std::chrono::steady_clock::now();
  options.progress = [&](double share) {
    const auto now = std::chrono::steady_clock::now();
    if (now - told < kTellEvery) return true;
    told = now;
    const AskForGil ask;
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) return false;  // Ctrl-C
    if (progress.is_none()) return true;
    // The call may raise: then we stop, and the exception waits for Analyze() to find it.
    PyObject* const result = PyObject_CallFunction(progress.ptr(), "d", share);
    Py_XDECREF(result);
    return result != nullptr;
  };
  absl::StatusOr<TraceSummary> summary;
  {
    ReleaseGil release;
    summary = AnalyzeTrace(path, options);
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  ThrowIfError(summary.status());
  py::dict result;
  result["path"] = summary->path;
  result["events"] = summary->events;
  result["devices"] = summary->devices;
  result["rank"] = summary->rank;
  return result;
}

}  // namespace

void BindTrace(py::module_& module) {
  module.def("analyze_trace", &Analyze, py::arg("path"), py::arg("output"), py::kw_only(), py::arg("overwrite") = false,
             py::arg("threads") = 0, py::arg("meta") = std::map<std::string, std::string>(),
             py::arg("progress") = py::none(),
             "Writes the run file of a torch.profiler trace; an empty output makes a private temporary file.\n\n"
             "progress(share) is called every 100 ms; what it raises ends the work. Gives path, events, devices and\n"
             "rank (-1: not known). Raises ValueError for what is no trace, and as Session for both paths.");
}

}  // namespace trainperf
