#include "trainperf/timeline/kernel_names.h"

#include <initializer_list>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace trainperf {
namespace {

bool HasAny(absl::string_view name, std::initializer_list<absl::string_view> words) {
  for (const absl::string_view word : words) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

}  // namespace

KernelClass ClassifyKernel(absl::string_view original) {
  const std::string name = absl::AsciiStrToLower(original);
  // NCCL and RCCL share their kernels' names; the last ones are of torch's symmetric memory.
  if (HasAny(name, {"nccldevkernel", "ncclkernel", "rccl", "one_shot_all_reduce", "two_shot_all_reduce",
                    "multimem_all_reduce", "multimem_all_gather", "multimem_one_shot"})) {
    return {KernelKind::kCollective, false};
  }
  // Shapes of the matrix instructions (m16n8k16 ...), cuBLAS' and CUTLASS' names of their use, and attention that is
  // made of them. "mi16x16" is of AMD's Tensile.
  if (HasAny(name, {"nvjet",
                    "xmma_gemm",
                    "xmma_fprop",
                    "xmma_dgrad",
                    "xmma_wgrad",
                    "tensorop",
                    "s16816",
                    "h16816",
                    "s1688",
                    "h1688",
                    "s161616",
                    "i16832",
                    "i8816",
                    "884gemm",
                    "884cudnn",
                    "s884",
                    "h884",
                    "d884",
                    "hmma",
                    "imma",
                    "wgmma",
                    "gmma_",
                    "flash_fwd",
                    "flash_bwd",
                    "flashattn",
                    "fmha",
                    "mi16x16",
                    "mi32x32",
                    "cudnn_generated_fort_native_sdpa",
                    "flash_attention",
                    "tensor_op"})) {
    return {KernelKind::kTensorCore, true};
  }
  if (HasAny(name, {"gemv", "gevm"}))
    return {KernelKind::kNoTensorCore, false};  // bound by memory, whatever computes it
  if (HasAny(name, {"sgemm", "dgemm", "simt", "scudnn", "implicit_convolve", "gemmsn_", "gemmk1"})) {
    return {KernelKind::kNoTensorCore, true};
  }
  const bool convolution = HasAny(name, {"convolution", "conv2d", "conv1d", "conv3d", "conv_", "convolve", "fprop",
                                         "wgrad", "dgrad", "winograd"}) &&
                           !HasAny(name, {"conv_depthwise", "depthwise"});
  return {KernelKind::kUnknown, convolution || HasAny(name, {"gemm", "cutlass", "cijk_", "attention", "sdpa"})};
}

}  // namespace trainperf
