// A GotPatch of the object that CPython itself is in: the executable, or libpython.

#ifndef TRAINPERF_CPYTHON_INTERPRETER_PATCH_H_
#define TRAINPERF_CPYTHON_INTERPRETER_PATCH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainperf/cpython/got_patch.h"

namespace trainperf {

// As GotPatch::Install(); `real`: the function itself.
absl::StatusOr<std::unique_ptr<GotPatch>> PatchInterpreter(const char* symbol, void* replacement, void* real);

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_INTERPRETER_PATCH_H_
