#include <string>

#include "bindings/bind.h"

namespace py = pybind11;

namespace trainperf {

void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  PyObject* type = nullptr;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      type = PyExc_ValueError;
      break;
    case absl::StatusCode::kAlreadyExists:
      type = PyExc_FileExistsError;
      break;
    case absl::StatusCode::kNotFound:
      type = PyExc_FileNotFoundError;
      break;
    case absl::StatusCode::kPermissionDenied:
      type = PyExc_PermissionError;
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      type = PyExc_OSError;
      break;
    case absl::StatusCode::kUnimplemented:
      type = PyExc_NotImplementedError;
      break;
    default: {
      const bool second_watch = status.code() == absl::StatusCode::kFailedPrecondition;
      const py::object errors = py::module_::import("trainperf.errors");
      const py::object error = errors.attr(second_watch ? "AlreadyWatchingError" : "TrainperfError");
      PyErr_SetString(error.ptr(), message.c_str());
      throw py::error_already_set();
    }
  }
  PyErr_SetString(type, message.c_str());
  throw py::error_already_set();
}

}  // namespace trainperf
