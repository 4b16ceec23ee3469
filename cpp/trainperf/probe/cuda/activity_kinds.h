// Switches CUPTI's activity kinds, and what it tells of calls, on and off, as a tier wants them.
//
//   ActivityKinds kinds(&api);
//   status = kinds.Apply(CudaTier::kFull, subscriber);
//   status = kinds.Change(CudaTier::kSync);             // what both have stays on all the while
//   kinds.DisableAll();
//
// Of calls the subscriber's callback tells (CallLog); without a subscription, records do, which cost more.
// The first error undoes everything: CUPTI is then not called again. Work whose launch is not told would look lost, so
// launches are told from before kernels are recorded until after.

#ifndef TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_
#define TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "trainperf/probe/cuda/cupti_api.h"
#include "trainperf/probe/cuda/tier_control.h"

namespace trainperf {

// Not thread-safe: one caller at a time.
class ActivityKinds {
 public:
  explicit ActivityKinds(const CuptiApi* api) : api_(api) {}

  // `subscriber`: null when we have none.
  absl::Status Apply(CudaTier tier, void* subscriber);
  // From one tier that traces to another.
  absl::Status Change(CudaTier tier);
  void DisableAll();

 private:
  absl::Status Enable(uint32_t kind);
  absl::Status EnableWork();
  void DisableWork();
  bool CallBack(CudaTier tier, void* subscriber);
  void StopCallbacks();
  absl::Status RecordCalls(CudaTier tier);
  void TellLaunches(bool on);

  const CuptiApi* api_;
  std::vector<uint32_t> enabled_;
  void* calls_back_ = nullptr;  // the subscriber whose callbacks are on
  CudaTier tier_ = CudaTier::kOff;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_
