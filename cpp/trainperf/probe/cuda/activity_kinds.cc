#include "trainperf/probe/cuda/activity_kinds.h"

#include "trainperf/base/status_macros.h"
#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

// kFull traces every call of the table; kReduced and kSync only some.
bool Wanted(CudaTier tier, const CudaCall& call) {
  if (tier == CudaTier::kFull) return true;
  if (IsSync(call.call)) return true;
  const bool driver = call.api == CudaApi::kDriver;
  if (tier == CudaTier::kSync) return !driver && (call.call == HostCall::kAlloc || call.call == HostCall::kFree);
  return IsLaunch(call.call) || (!driver && call.call != HostCall::kMemset);
}

}  // namespace

absl::Status ActivityKinds::Enable(uint32_t kind) {
  const cupti::Result result = api_->ActivityEnable(kind);
  if (result != cupti::kSuccess) {
    return absl::UnavailableError(api_->Error("cuptiActivityEnable", result));
  }
  enabled_.push_back(kind);
  return absl::OkStatus();
}

absl::Status ActivityKinds::Apply(CudaTier tier) {
  DisableAll();
  if (tier == CudaTier::kOff) return absl::OkStatus();
  const auto enable_all = [&]() -> absl::Status {
    if (tier != CudaTier::kSync) {
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindConcurrentKernel));
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindMemcpy));
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindMemcpy2));
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindMemset));
    }
    TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindOverhead));
    if (tier != CudaTier::kReduced) TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindSynchronization));
    if (tier == CudaTier::kFull) TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindJit));
    // Without filters per call it is all of the runtime's calls, or none.
    if (tier == CudaTier::kFull || (tier == CudaTier::kReduced && !api_->can.filter_calls)) {
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindRuntime));
    }
    if (tier == CudaTier::kFull && !api_->can.filter_calls) TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindDriver));
    return absl::OkStatus();
  };
  const absl::Status status = enable_all();
  if (!status.ok()) {
    DisableAll();
    return status;
  }
  if (api_->can.filter_calls) {
    FilterRuntime(tier);
    AllowDriver(tier);
  }
  return absl::OkStatus();
}

void ActivityKinds::FilterRuntime(CudaTier tier) {
  // A call that this library does not know is an error to it, and of no account.
  if (tier == CudaTier::kFull) {  // after the kind, which would override it
    int count = 0;
    const uint16_t* noisy = NoisyRuntimeCalls(&count);
    for (int i = 0; i < count; ++i) api_->ActivityEnableRuntimeApi(noisy[i], 0);
    return;
  }
  int count = 0;
  const CudaCall* calls = CudaCalls(&count);
  for (int i = 0; i < count; ++i) {
    if (calls[i].api != CudaApi::kRuntime || !Wanted(tier, calls[i])) continue;
    if (api_->ActivityEnableRuntimeApi(calls[i].cbid, 1) == cupti::kSuccess) runtime_calls_.push_back(calls[i].cbid);
  }
}

void ActivityKinds::AllowDriver(CudaTier tier) {
  int count = 0;
  const CudaCall* calls = CudaCalls(&count);
  for (int i = 0; i < count; ++i) {
    if (calls[i].api != CudaApi::kDriver || !Wanted(tier, calls[i])) continue;
    if (api_->ActivityEnableDriverApi(calls[i].cbid, 1) == cupti::kSuccess) driver_calls_.push_back(calls[i].cbid);
  }
}

void ActivityKinds::DisableAll() {
  for (const uint32_t cbid : runtime_calls_) api_->ActivityEnableRuntimeApi(cbid, 0);
  for (const uint32_t cbid : driver_calls_) api_->ActivityEnableDriverApi(cbid, 0);
  runtime_calls_.clear();
  driver_calls_.clear();
  while (!enabled_.empty()) {  // in reverse: kernels last
    api_->ActivityDisable(enabled_.back());
    enabled_.pop_back();
  }
}

}  // namespace trainperf
