// What a kernel's name says of it. The only place that knows libraries' names; everything else asks here.

#ifndef TRAINPERF_TIMELINE_KERNEL_NAMES_H_
#define TRAINPERF_TIMELINE_KERNEL_NAMES_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainperf {

enum class KernelKind : uint8_t { kUnknown, kTensorCore, kNoTensorCore, kCollective };

// As the run file spells them.
inline constexpr std::array<const char*, 4> kKernelKindNames = {"unknown", "tensor_core", "no_tensor_core",
                                                                "collective"};

struct KernelClass {
  KernelKind kind = KernelKind::kUnknown;
  bool eligible = false;  // a matrix product, convolution or attention: tensor cores could do it, given its data type
};

KernelClass ClassifyKernel(absl::string_view name);

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_KERNEL_NAMES_H_
