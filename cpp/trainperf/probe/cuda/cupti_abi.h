// CUPTI's binary interface, as far as we use it: no header of NVIDIA's is needed to build.
//
// Newer versions only append fields to a record, and a library fills records of its newest version only, so a prefix
// of each record is enough: from 12.4 on these offsets are all stable. cupti_abi_test.cc compares them with the real
// headers where CMake finds those.

#ifndef TRAINPERF_PROBE_CUDA_CUPTI_ABI_H_
#define TRAINPERF_PROBE_CUDA_CUPTI_ABI_H_

#include <cstddef>
#include <cstdint>

namespace trainperf {
namespace cupti {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kMaxLimitReached = 12;  // cuptiActivityGetNextRecord: no more records
inline constexpr Result kMultipleSubscribers = 39;
inline constexpr Result kUnknownError = 999;  // without a driver, nearly every call

// cuptiGetVersion's numbers.
inline constexpr uint32_t kVersion12_4 = 22;
inline constexpr uint32_t kVersion12_5 = 23;
inline constexpr uint32_t kVersion12_9 = 27;
inline constexpr uint32_t kVersion13_0 = 130000;
inline constexpr uint32_t kVersion13_0U1 = 130001;

enum Kind : uint32_t {
  kKindMemcpy = 1,
  kKindMemset = 2,
  kKindDriver = 4,
  kKindRuntime = 5,
  kKindConcurrentKernel = 10,
  kKindOverhead = 17,
  kKindMemcpy2 = 22,  // between two devices
  kKindSynchronization = 38,
  kKindGraphTrace = 51,
  kKindJit = 52,
};

enum Attribute : uint32_t {
  kAttributeZeroedOut = 5,         // uint8_t: our buffers come zeroed
  kAttributePerThreadBuffers = 9,  // uint8_t; the default from 13.0 on
};

enum ThreadIdType : uint32_t { kThreadIdDefault = 0, kThreadIdSystem = 1 };

enum OverheadKind : uint32_t {
  kOverheadDriverCompiler = 1,
  kOverheadBufferFlush = 1 << 16,
  kOverheadInstrumentation = 2 << 16,
  kOverheadResource = 3 << 16,
  kOverheadModuleLoading = 4 << 16,  // the runtime loads a module
  kOverheadLazyLoading = 5 << 16,    // a function is loaded at its first use
  kOverheadCommandBufferFull = 6 << 16,
  kOverheadBufferRequest = 7 << 16,
};
inline constexpr uint32_t kObjectThread = 2;  // OverheadRecord::object_kind

enum SyncType : uint32_t { kSyncEvent = 1, kSyncStreamWaitEvent = 2, kSyncStream = 3, kSyncContext = 4 };

inline constexpr uint32_t kJitCompile = 3;

enum CallbackDomain : int { kDriverDomain = 1, kRuntimeDomain = 2 };
enum CallbackSite : uint32_t { kEnter = 0, kExit = 1 };

#pragma pack(push, 1)

struct Record {
  uint32_t kind;
};

struct KernelRecord {  // CUpti_ActivityKernel5 and later
  uint32_t kind;
  uint8_t unused1[12];
  uint64_t start, end;
  uint64_t completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  uint8_t unused2[16];
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  uint8_t unused3[32];
  uint64_t graph_node;
  uint8_t unused4[4];
  uint32_t graph;
};

struct MemcpyRecord {  // CUpti_ActivityMemcpy4 and later
  uint32_t kind;
  uint8_t copy_kind, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint8_t unused[24];
  uint32_t graph;
};

struct MemcpyPeerRecord {  // CUpti_ActivityMemcpyPtoP2 and later
  uint32_t kind;
  uint8_t copy_kind, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t from_device, from_context, to_device, to_context;
  uint32_t correlation;
};

struct MemsetRecord {  // CUpti_ActivityMemset2 and later
  uint32_t kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};

struct ApiRecord {
  uint32_t kind;
  uint32_t cbid;
  uint64_t start, end;
  uint32_t process, thread, correlation, returned;
};

struct SyncRecord {
  uint32_t kind;
  uint32_t type;
  uint64_t start, end;
  uint32_t correlation, context, stream, event;
};

struct OverheadRecord {  // CUpti_ActivityOverhead2 (12.2) and later
  uint32_t kind;
  uint32_t overhead;
  uint32_t object_kind;
  uint32_t process, thread;  // of kObjectThread
  uint32_t unused;
  uint64_t start, end;
  uint32_t correlation;
};

struct JitRecord {
  uint32_t kind;
  uint32_t entry, operation, device;
  uint64_t start, end;
  uint32_t correlation;
};

#pragma pack(pop)

static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, device) == 40 &&
              offsetof(KernelRecord, correlation) == 92 && offsetof(KernelRecord, name) == 104 &&
              offsetof(KernelRecord, graph_node) == 144 && offsetof(KernelRecord, graph) == 156);
static_assert(offsetof(MemcpyRecord, correlation) == 44 && offsetof(MemcpyRecord, graph) == 72);
static_assert(offsetof(MemcpyPeerRecord, correlation) == 60);
static_assert(offsetof(MemsetRecord, correlation) == 44);
static_assert(sizeof(ApiRecord) == 40 && sizeof(SyncRecord) == 40);
static_assert(offsetof(OverheadRecord, start) == 24 && offsetof(OverheadRecord, correlation) == 40);
static_assert(offsetof(JitRecord, correlation) == 32);

// Of CUpti_SubscriberParams, for cuptiSubscribe_v2 (13.0).
struct SubscriberParams {
  size_t struct_size;
  const char* name;
  char* old_name;
  size_t old_name_size;
};
inline constexpr size_t kOldNameSize = 64;

// CUpti_CallbackData, of the domains of calls.
struct CallbackData {
  uint32_t site;
  const char* function;
  const void* parameters;
  void* returned;  // at the exit: CUresult, or cudaError_t
  const char* symbol;
  void* context;
  uint32_t context_uid;
  uint64_t* correlation_data;  // the client's, the same from enter to exit; what it holds at first is not said
  uint32_t correlation;        // that of the call's record, and of what it launches
};

using BufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);
using Callback = void (*)(void* user, int domain, uint32_t cbid, const CallbackData* data);

}  // namespace cupti
}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CUPTI_ABI_H_
