// A function of a library that is opened while the program runs.

#ifndef TRAINPERF_PROBE_CUDA_SYMBOL_H_
#define TRAINPERF_PROBE_CUDA_SYMBOL_H_

#include <dlfcn.h>

namespace trainperf {

// `function` becomes the library's of that name; null: it has none.
template <typename Function>
void TakeSymbol(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
}

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_SYMBOL_H_
