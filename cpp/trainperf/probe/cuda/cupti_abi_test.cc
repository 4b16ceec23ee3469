// Our record prefixes and call numbers beside CUPTI's own headers, where CMake finds them.

#include "trainperf/probe/cuda/cupti_abi.h"

#include <gtest/gtest.h>

#ifdef TRAINPERF_CUPTI_HEADERS
#include <cuda.h>
#include <cupti_version.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "trainperf/probe/cuda/call_table.h"
// After it:
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#if CUPTI_API_VERSION >= 130500
#define KERNEL CUpti_ActivityKernel13
#define MEMCPY CUpti_ActivityMemcpy7
#define MEMSET CUpti_ActivityMemset5
#elif CUPTI_API_VERSION >= 130300
#define KERNEL CUpti_ActivityKernel12
#elif CUPTI_API_VERSION >= 130100
#define KERNEL CUpti_ActivityKernel11
#elif CUPTI_API_VERSION >= 130000
#define KERNEL CUpti_ActivityKernel10
#else
#define KERNEL CUpti_ActivityKernel9
#endif
#ifndef MEMCPY
#if CUPTI_API_VERSION >= 26
#define MEMCPY CUpti_ActivityMemcpy6
#else
#define MEMCPY CUpti_ActivityMemcpy5
#endif
#define MEMSET CUpti_ActivityMemset4
#endif
#if CUPTI_API_VERSION >= 26
#define SYNC CUpti_ActivitySynchronization2
#else
#define SYNC CUpti_ActivitySynchronization
#endif

namespace trainperf {
namespace cupti {
namespace {

#define SAME(ours, our_field, theirs, their_field)                                    \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&         \
                    sizeof(ours::our_field) == sizeof(decltype(theirs::their_field)), \
                #ours "." #our_field)

SAME(KernelRecord, kind, KERNEL, kind);
SAME(KernelRecord, start, KERNEL, start);
SAME(KernelRecord, end, KERNEL, end);
SAME(KernelRecord, completed, KERNEL, completed);
SAME(KernelRecord, device, KERNEL, deviceId);
SAME(KernelRecord, context, KERNEL, contextId);
SAME(KernelRecord, stream, KERNEL, streamId);
SAME(KernelRecord, correlation, KERNEL, correlationId);
SAME(KernelRecord, grid_id, KERNEL, gridId);
SAME(KernelRecord, name, KERNEL, name);
SAME(KernelRecord, graph_node, KERNEL, graphNodeId);
SAME(KernelRecord, graph, KERNEL, graphId);
SAME(MemcpyRecord, copy_kind, MEMCPY, copyKind);
SAME(MemcpyRecord, from, MEMCPY, srcKind);
SAME(MemcpyRecord, to, MEMCPY, dstKind);
SAME(MemcpyRecord, bytes, MEMCPY, bytes);
SAME(MemcpyRecord, start, MEMCPY, start);
SAME(MemcpyRecord, device, MEMCPY, deviceId);
SAME(MemcpyRecord, stream, MEMCPY, streamId);
SAME(MemcpyRecord, correlation, MEMCPY, correlationId);
SAME(MemcpyRecord, graph, MEMCPY, graphId);
SAME(MemcpyPeerRecord, from, CUpti_ActivityMemcpyPtoP4, srcKind);
SAME(MemcpyPeerRecord, bytes, CUpti_ActivityMemcpyPtoP4, bytes);
SAME(MemcpyPeerRecord, start, CUpti_ActivityMemcpyPtoP4, start);
SAME(MemcpyPeerRecord, device, CUpti_ActivityMemcpyPtoP4, deviceId);
SAME(MemcpyPeerRecord, stream, CUpti_ActivityMemcpyPtoP4, streamId);
SAME(MemcpyPeerRecord, correlation, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME(MemsetRecord, bytes, MEMSET, bytes);
SAME(MemsetRecord, start, MEMSET, start);
SAME(MemsetRecord, device, MEMSET, deviceId);
SAME(MemsetRecord, stream, MEMSET, streamId);
SAME(MemsetRecord, correlation, MEMSET, correlationId);
SAME(ApiRecord, cbid, CUpti_ActivityAPI, cbid);
SAME(ApiRecord, start, CUpti_ActivityAPI, start);
SAME(ApiRecord, process, CUpti_ActivityAPI, processId);
SAME(ApiRecord, thread, CUpti_ActivityAPI, threadId);
SAME(ApiRecord, correlation, CUpti_ActivityAPI, correlationId);
SAME(ApiRecord, returned, CUpti_ActivityAPI, returnValue);
SAME(SyncRecord, type, SYNC, type);
SAME(SyncRecord, start, SYNC, start);
SAME(SyncRecord, correlation, SYNC, correlationId);
SAME(SyncRecord, stream, SYNC, streamId);
SAME(OverheadRecord, overhead, CUpti_ActivityOverhead3, overheadKind);
SAME(OverheadRecord, object_kind, CUpti_ActivityOverhead3, objectKind);
SAME(OverheadRecord, start, CUpti_ActivityOverhead3, start);
SAME(OverheadRecord, correlation, CUpti_ActivityOverhead3, correlationId);
static_assert(offsetof(OverheadRecord, process) == offsetof(CUpti_ActivityOverhead3, objectId));
SAME(JitRecord, operation, CUpti_ActivityJit2, jitOperationType);
SAME(JitRecord, start, CUpti_ActivityJit2, start);
SAME(JitRecord, correlation, CUpti_ActivityJit2, correlationId);
SAME(CallbackData, site, CUpti_CallbackData, callbackSite);
SAME(CallbackData, returned, CUpti_CallbackData, functionReturnValue);
SAME(CallbackData, correlation_data, CUpti_CallbackData, correlationData);
SAME(CallbackData, correlation, CUpti_CallbackData, correlationId);

#define NUMBER(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #theirs)

NUMBER(kKindMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
NUMBER(kKindMemset, CUPTI_ACTIVITY_KIND_MEMSET);
NUMBER(kKindDriver, CUPTI_ACTIVITY_KIND_DRIVER);
NUMBER(kKindRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
NUMBER(kKindConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
NUMBER(kKindOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
NUMBER(kKindMemcpy2, CUPTI_ACTIVITY_KIND_MEMCPY2);
NUMBER(kKindSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
NUMBER(kKindJit, CUPTI_ACTIVITY_KIND_JIT);
NUMBER(kAttributeZeroedOut, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
NUMBER(kThreadIdSystem, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
NUMBER(kObjectThread, CUPTI_ACTIVITY_OBJECT_THREAD);
NUMBER(kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
NUMBER(kUnknownError, CUPTI_ERROR_UNKNOWN);
NUMBER(kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
NUMBER(kOverheadModuleLoading, CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING);
NUMBER(kOverheadLazyLoading, CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING);
NUMBER(kOverheadCommandBufferFull, CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL);
#if CUPTI_API_VERSION >= 24
NUMBER(kOverheadBufferRequest, CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST);
#endif
NUMBER(kSyncEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
NUMBER(kSyncStream, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
NUMBER(kSyncContext, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
NUMBER(kJitCompile, CUPTI_ACTIVITY_JIT_OPERATION_COMPILE);
NUMBER(kDriverDomain, CUPTI_CB_DOMAIN_DRIVER_API);
NUMBER(kRuntimeDomain, CUPTI_CB_DOMAIN_RUNTIME_API);
NUMBER(kEnter, CUPTI_API_ENTER);
NUMBER(kExit, CUPTI_API_EXIT);
#if CUPTI_API_VERSION >= 130000
NUMBER(kAttributePerThreadBuffers, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER);
// Newer versions append to the parameters; they look at struct_size.
static_assert(offsetof(SubscriberParams, old_name_size) == offsetof(CUpti_SubscriberParams, oldSubscriberSize));
#endif
static_assert(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 == 211 &&
              CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020 == 131 &&
              CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020 == 41 &&
              CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 == 311 && CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel == 307 &&
              CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx == 652);

}  // namespace
}  // namespace cupti
}  // namespace trainperf

TEST(CuptiAbi, OurPrefixesAreTheHeaders) {
  RecordProperty("cupti_api_version", CUPTI_API_VERSION);  // the static_asserts above are the test
}

// Each call of our table by its name; a call that these headers do not know yet (or any more) is passed over.
TEST(CuptiAbi, OurCallNumbersAreTheHeaders) {
  std::map<std::string, int> numbers;
  for (const char* header : {"cupti_runtime_cbid.h", "cupti_driver_cbid.h"}) {
    std::ifstream file(std::string(TRAINPERF_CUPTI_HEADERS "/") + header);
    const std::regex entry("CUPTI_(RUNTIME|DRIVER)_TRACE_CBID_(\\w+)\\s*=\\s*(\\d+)");
    for (std::string line; std::getline(file, line);) {
      std::smatch found;
      if (std::regex_search(line, found, entry)) numbers[found[1].str() + found[2].str()] = std::stoi(found[3]);
    }
  }
  ASSERT_GT(numbers.size(), 1000u);
  int count = 0, compared = 0;
  const trainperf::CudaCall* calls = trainperf::CudaCalls(&count);
  for (int i = 0; i < count; ++i) {
    const bool driver = calls[i].api == trainperf::CudaApi::kDriver;
    const auto found = numbers.find(std::string(driver ? "DRIVER" : "RUNTIME") + calls[i].name);
    if (found == numbers.end()) continue;
    EXPECT_EQ(calls[i].cbid, found->second) << calls[i].name;
    ++compared;
  }
  EXPECT_GT(compared, count * 9 / 10);
}
#else
TEST(CuptiAbi, OurPrefixesAreTheHeaders) { GTEST_SKIP() << "no CUPTI headers on this machine (CUDA_HOME)"; }
#endif
