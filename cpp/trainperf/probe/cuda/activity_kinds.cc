#include "trainperf/probe/cuda/activity_kinds.h"

#include "trainperf/base/status_macros.h"
#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

// kFull traces every call of the table; kSync only those that wait or allocate.
bool Wanted(CudaTier tier, CudaApi api, uint32_t cbid) {
  const uint8_t known = HostCallOf(api, cbid);
  if (known == kNoHostCall) return false;
  const auto call = static_cast<HostCall>(known);
  if (tier == CudaTier::kFull || IsSync(call)) return true;
  const bool driver = api == CudaApi::kDriver;
  return !driver && (call == HostCall::kAlloc || call == HostCall::kFree);
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
    TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindSynchronization));
    if (tier == CudaTier::kFull) TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindJit));
    // Without filters per call it is all calls or none.
    if (api_->can.filter_calls || tier == CudaTier::kFull) {
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindRuntime));
      TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindDriver));
    }
    return absl::OkStatus();
  };
  const absl::Status status = enable_all();
  if (!status.ok()) {
    DisableAll();
    return status;
  }
  if (api_->can.filter_calls) LeaveOutCalls(tier);
  return absl::OkStatus();
}

// After the kinds, which would override it. The other way round, calls switched on one by one without their kind, gives
// no record once the program has used CUDA (CUPTI 13.0 U1).
void ActivityKinds::LeaveOutCalls(CudaTier tier) {
  for (uint32_t cbid = 1; cbid < kCallIds; ++cbid) {
    // An id that this library does not know is an error to it, and of no account.
    if (!Wanted(tier, CudaApi::kRuntime, cbid)) api_->ActivityEnableRuntimeApi(cbid, 0);
    if (!Wanted(tier, CudaApi::kDriver, cbid)) api_->ActivityEnableDriverApi(cbid, 0);
  }
}

void ActivityKinds::DisableAll() {
  while (!enabled_.empty()) {  // in reverse: kernels last
    api_->ActivityDisable(enabled_.back());
    enabled_.pop_back();
  }
}

}  // namespace trainperf
