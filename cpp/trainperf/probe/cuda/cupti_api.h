// The CUPTI library of this process: found, never linked, never loaded twice, never unloaded.
//
//   auto api = CuptiApi::Load({"/opt/venv/.../nvidia/cuda_cupti/lib"}, /*path=*/"");
//   if (api.ok()) api->ActivityEnable(cupti::kKindRuntime);
//
// Every symbol is optional; `can` tells what the loaded version does. The calls themselves are thread-safe.

#ifndef TRAINPERF_PROBE_CUDA_CUPTI_API_H_
#define TRAINPERF_PROBE_CUDA_CUPTI_API_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainperf/probe/cuda/cupti_abi.h"

namespace trainperf {

struct CuptiApi {
  // What a version can do, or must be spared.
  struct Capabilities {
    bool filter_calls;        // Enable{Runtime,Driver}Api per call (12.5)
    bool refuse_buffers;      // a buffer request may be answered with NULL (12.9)
    bool per_thread_default;  // per-thread buffers unless switched off (13.0)
  };

  // A copy that the process has loaded already; else `path` when it is given; else the first libcupti.so.13 or .12 in
  // `folders`; else the dynamic loader's own search. NotFound names what was looked for. Unimplemented: a version that
  // we must not use.
  static absl::StatusOr<CuptiApi> Load(const std::vector<std::string>& folders, const std::string& path);

  std::string file;  // where it was found
  uint32_t version = 0;
  Capabilities can{};

  std::string VersionName() const;
  // "cuptiSubscribe: CUPTI_ERROR_UNKNOWN (999)"
  std::string Error(const char* call, cupti::Result result) const;

  cupti::Result (*GetVersion)(uint32_t*) = nullptr;
  cupti::Result (*GetTimestamp)(uint64_t*) = nullptr;
  cupti::Result (*GetResultString)(cupti::Result, const char**) = nullptr;
  cupti::Result (*Subscribe)(void**, cupti::Callback, void*) = nullptr;
  cupti::Result (*SubscribeV2)(void**, cupti::Callback, void*, cupti::SubscriberParams*) = nullptr;
  cupti::Result (*Unsubscribe)(void*) = nullptr;
  cupti::Result (*EnableCallback)(uint32_t enable, void* subscriber, int domain, uint32_t cbid) = nullptr;
  cupti::Result (*ActivityRegisterCallbacks)(cupti::BufferRequested, cupti::BufferCompleted) = nullptr;
  cupti::Result (*ActivityEnable)(uint32_t kind) = nullptr;
  cupti::Result (*ActivityDisable)(uint32_t kind) = nullptr;
  cupti::Result (*ActivityFlushAll)(uint32_t flag) = nullptr;
  cupti::Result (*ActivityGetNextRecord)(uint8_t* buffer, size_t valid, cupti::Record** record) = nullptr;
  cupti::Result (*ActivityGetNumDroppedRecords)(void* context, uint32_t stream, size_t* dropped) = nullptr;
  cupti::Result (*ActivitySetAttribute)(uint32_t attribute, size_t* size, void* value) = nullptr;
  cupti::Result (*ActivityEnableRuntimeApi)(uint32_t cbid, uint8_t enable) = nullptr;
  cupti::Result (*ActivityEnableDriverApi)(uint32_t cbid, uint8_t enable) = nullptr;
  cupti::Result (*SetThreadIdType)(uint32_t type) = nullptr;
  cupti::Result (*GetThreadIdType)(uint32_t* type) = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CUPTI_API_H_
