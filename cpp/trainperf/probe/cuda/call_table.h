// Which of CUDA's calls are what to us: the one table of callback ids.
//
// The numbers are those of cupti_runtime_cbid.h and cupti_driver_cbid.h, which never change (cupti_abi_test.cc compares
// them). Every other call is of no account: its time shows as the phase it is in.

#ifndef TRAINPERF_PROBE_CUDA_CALL_TABLE_H_
#define TRAINPERF_PROBE_CUDA_CALL_TABLE_H_

#include <cstdint>

#include "trainperf/event/event.h"

namespace trainperf {

enum class CudaApi : uint8_t { kRuntime, kDriver };

struct CudaCall {
  uint16_t cbid;
  CudaApi api;
  HostCall call;
  const char* name;
};

// All calls that we want to see, in no order.
const CudaCall* CudaCalls(int* count);

inline constexpr uint32_t kCallIds = 1024;  // all ids are below
inline constexpr uint8_t kNoHostCall = 0xff;
// A HostCall, or kNoHostCall.
uint8_t HostCallOf(CudaApi api, uint32_t cbid);

constexpr bool IsSync(HostCall call) {
  return call == HostCall::kStreamSync || call == HostCall::kEventSync || call == HostCall::kDeviceSync;
}

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CALL_TABLE_H_
