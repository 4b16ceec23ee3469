#include "trainperf/probe/cuda/activity_kinds.h"

#include <algorithm>
#include <iterator>

#include "trainperf/base/status_macros.h"
#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

// Of work, in the order in which they are switched on.
constexpr uint32_t kWork[] = {cupti::kKindConcurrentKernel, cupti::kKindMemcpy, cupti::kKindMemcpy2,
                              cupti::kKindMemset};

// kFull traces every call of the table; kSync all but the launches.
bool Wanted(CudaTier tier, CudaApi api, uint32_t cbid) {
  const uint8_t known = HostCallOf(api, cbid);
  return known != kNoHostCall && (tier == CudaTier::kFull || !IsLaunch(static_cast<HostCall>(known)));
}

int DomainOf(CudaApi api) { return api == CudaApi::kDriver ? cupti::kDriverDomain : cupti::kRuntimeDomain; }

}  // namespace

absl::Status ActivityKinds::Enable(uint32_t kind) {
  const cupti::Result result = api_->ActivityEnable(kind);
  if (result != cupti::kSuccess) {
    return absl::UnavailableError(api_->Error("cuptiActivityEnable", result));
  }
  enabled_.push_back(kind);
  return absl::OkStatus();
}

absl::Status ActivityKinds::Apply(CudaTier tier, void* subscriber) {
  DisableAll();
  if (tier == CudaTier::kOff) return absl::OkStatus();
  const auto enable_all = [&]() -> absl::Status {
    TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindOverhead));
    TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindSynchronization));
    TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindJit));
    if (!CallBack(tier, subscriber)) TRAINPERF_RETURN_IF_ERROR(RecordCalls(tier));
    return tier == CudaTier::kFull ? EnableWork() : absl::OkStatus();
  };
  const absl::Status status = enable_all();
  tier_ = tier;
  if (!status.ok()) DisableAll();
  return status;
}

absl::Status ActivityKinds::Change(CudaTier tier) {
  if (tier == tier_) return absl::OkStatus();
  if (tier == CudaTier::kOff || tier_ == CudaTier::kOff) {
    DisableAll();
    return tier == CudaTier::kOff ? absl::OkStatus() : absl::FailedPreconditionError("nothing is switched on yet");
  }
  absl::Status status;
  if (tier == CudaTier::kFull) {
    TellLaunches(true);
    status = EnableWork();
  } else {
    DisableWork();
    TellLaunches(false);
  }
  tier_ = tier;
  if (!status.ok()) DisableAll();
  return status;
}

absl::Status ActivityKinds::EnableWork() {
  for (const uint32_t kind : kWork) TRAINPERF_RETURN_IF_ERROR(Enable(kind));
  return absl::OkStatus();
}

void ActivityKinds::DisableWork() {
  for (auto kind = std::rbegin(kWork); kind != std::rend(kWork); ++kind) {  // kernels last
    api_->ActivityDisable(*kind);
    enabled_.erase(std::remove(enabled_.begin(), enabled_.end(), *kind), enabled_.end());
  }
}

// One by one, in whatever way calls are told. Errors are of no account: that an id is not known was seen before.
void ActivityKinds::TellLaunches(bool on) {
  if (calls_back_ == nullptr && !api_->can.filter_calls) return;  // all calls are recorded, or none
  int count = 0;
  const CudaCall* const calls = CudaCalls(&count);
  for (int i = 0; i < count; ++i) {
    const CudaCall& call = calls[i];
    if (!IsLaunch(call.call)) continue;
    const bool driver = call.api == CudaApi::kDriver;
    if (calls_back_ != nullptr) {
      api_->EnableCallback(on ? 1 : 0, calls_back_, DomainOf(call.api), call.cbid);
    } else {
      (driver ? api_->ActivityEnableDriverApi : api_->ActivityEnableRuntimeApi)(call.cbid, on ? 1 : 0);
    }
  }
}

// False: no callbacks can be had of both APIs; then there are none.
bool ActivityKinds::CallBack(CudaTier tier, void* subscriber) {
  if (subscriber == nullptr || api_->EnableCallback == nullptr) return false;
  int count = 0;
  bool told[2] = {false, false};  // by CudaApi
  const CudaCall* const calls = CudaCalls(&count);
  calls_back_ = subscriber;
  for (int i = 0; i < count; ++i) {
    if (!Wanted(tier, calls[i].api, calls[i].cbid)) continue;
    // An id that this library does not know is an error to it, and of no account.
    if (api_->EnableCallback(1, subscriber, DomainOf(calls[i].api), calls[i].cbid) == cupti::kSuccess) {
      told[static_cast<int>(calls[i].api)] = true;
    }
  }
  if (told[0] && told[1]) return true;
  StopCallbacks();
  return false;
}

// Calls are left out after the kinds are on, which would override it. The other way round, calls switched on one by one
// without their kind, gives no record once the program has used CUDA (CUPTI 13.0 U1).
absl::Status ActivityKinds::RecordCalls(CudaTier tier) {
  // Without filters per call it is all calls.
  TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindRuntime));
  TRAINPERF_RETURN_IF_ERROR(Enable(cupti::kKindDriver));
  if (!api_->can.filter_calls) return absl::OkStatus();
  int left_out = 0;
  cupti::Result last = cupti::kSuccess;
  const auto leave_out = [&](CudaApi api, cupti::Result (*enable)(uint32_t, uint8_t), uint32_t cbid) {
    if (Wanted(tier, api, cbid)) return;
    const cupti::Result result = enable(cbid, 0);
    // An id that this library does not know is an error to it, and of no account.
    if (result == cupti::kSuccess) {
      ++left_out;
    } else {
      last = result;
    }
  };
  for (uint32_t cbid = 1; cbid < kCallIds; ++cbid) {
    leave_out(CudaApi::kRuntime, api_->ActivityEnableRuntimeApi, cbid);
    leave_out(CudaApi::kDriver, api_->ActivityEnableDriverApi, cbid);
  }
  // All calls would be recorded, for several times the cost.
  if (left_out == 0) return absl::UnavailableError(api_->Error("cuptiActivityEnableRuntimeApi", last));
  return absl::OkStatus();
}

void ActivityKinds::StopCallbacks() {
  if (calls_back_ == nullptr) return;
  int count = 0;
  const CudaCall* const calls = CudaCalls(&count);
  for (int i = 0; i < count; ++i) api_->EnableCallback(0, calls_back_, DomainOf(calls[i].api), calls[i].cbid);
  calls_back_ = nullptr;
}

void ActivityKinds::DisableAll() {
  if (tier_ == CudaTier::kFull) DisableWork();
  StopCallbacks();
  while (!enabled_.empty()) {
    api_->ActivityDisable(enabled_.back());
    enabled_.pop_back();
  }
  tier_ = CudaTier::kOff;
}

}  // namespace trainperf
