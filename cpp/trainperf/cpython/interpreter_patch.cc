#include "trainperf/cpython/interpreter_patch.h"

#include <Python.h>

#include "trainperf/cpython/offsets.h"

namespace trainperf {

// In an executable that is not PIE a variable of libpython's may be a copy of the executable's own.
absl::StatusOr<std::unique_ptr<GotPatch>> PatchInterpreter(const char* symbol, void* replacement, void* real) {
  auto patch = GotPatch::Install(TpRuntimeAddress(), symbol, replacement, real);
  if (patch.ok() || absl::IsFailedPrecondition(patch.status())) return patch;
  return GotPatch::Install(reinterpret_cast<const void*>(&PyEval_RestoreThread), symbol, replacement, real);
}

}  // namespace trainperf
