// Switches CUPTI's activity kinds and per-call filters on and off, as a tier wants them.
//
//   ActivityKinds kinds(&api);
//   status = kinds.Apply(CudaTier::kFull);
//   kinds.DisableAll();
//
// The first error undoes everything: CUPTI is then not called again.

#ifndef TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_
#define TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "trainperf/probe/cuda/cupti_api.h"
#include "trainperf/probe/cuda/tier_control.h"

namespace trainperf {

// Not thread-safe.
class ActivityKinds {
 public:
  explicit ActivityKinds(const CuptiApi* api) : api_(api) {}

  absl::Status Apply(CudaTier tier);
  void DisableAll();

 private:
  absl::Status Enable(uint32_t kind);
  absl::Status LeaveOutCalls(CudaTier tier);

  const CuptiApi* api_;
  std::vector<uint32_t> enabled_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_ACTIVITY_KINDS_H_
