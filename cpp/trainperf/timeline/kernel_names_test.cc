#include "trainperf/timeline/kernel_names.h"

#include "gtest/gtest.h"

namespace trainperf {
namespace {

// Names from real traces and from the libraries' symbol tables.
struct Case {
  const char* name;
  KernelKind kind;
  bool eligible;
};

TEST(KernelNames, SayWhatTheyAre) {
  const Case cases[] = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", KernelKind::kCollective,
       false},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", KernelKind::kCollective, false},
      {"ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", KernelKind::kCollective, false},
      {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", KernelKind::kTensorCore, true},
      {"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", KernelKind::kTensorCore, true},
      {"ampere_bf16_s1688gemm_bf16_64x64_sliced1x2_ldg8_f2f_tn", KernelKind::kTensorCore, true},
      {"turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_medium_nhwc_tn_v1", KernelKind::kTensorCore, true},
      {"volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", KernelKind::kTensorCore, true},
      {"volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", KernelKind::kTensorCore, true},
      {"sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x8_stage3", KernelKind::kTensorCore, true},
      {"cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4", KernelKind::kTensorCore, true},
      {"void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(Params)", KernelKind::kNoTensorCore, true},
      {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Flash_fwd_params)",
       KernelKind::kTensorCore, true},
      {"fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", KernelKind::kTensorCore, true},
      {"volta_sgemm_128x64_nn", KernelKind::kNoTensorCore, true},
      {"ampere_sgemm_32x128_tn", KernelKind::kNoTensorCore, true},
      {"volta_scudnn_128x64_relu_interior_nn_v1", KernelKind::kNoTensorCore, true},
      {"void gemv2T_kernel_val<int, int, float>(cublasGemvParamsEx)", KernelKind::kNoTensorCore, false},
      {"void gemvNSP_kernel<float, 1, 32>(cublasGemvParams)", KernelKind::kNoTensorCore, false},
      {"void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)", KernelKind::kUnknown, true},
      {"Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1", KernelKind::kUnknown, true},
      {"Cijk_Ailk_Bljk_HHS_BH_MT128x128_MI32x32x8x1", KernelKind::kTensorCore, true},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", KernelKind::kUnknown,
       false},
      {"void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda(convert)>(int)", KernelKind::kUnknown,
       false},
      {"void at::native::conv_depthwise2d_forward_kernel<5>(float)", KernelKind::kUnknown, false},
      {"triton_poi_fused_add_relu_0", KernelKind::kUnknown, false},
      {"", KernelKind::kUnknown, false},
  };
  for (const Case& c : cases) {
    const KernelClass found = ClassifyKernel(c.name);
    EXPECT_EQ(kKernelKindNames[static_cast<size_t>(found.kind)], kKernelKindNames[static_cast<size_t>(c.kind)])
        << c.name;
    EXPECT_EQ(found.eligible, c.eligible) << c.name;
  }
}

}  // namespace
}  // namespace trainperf
