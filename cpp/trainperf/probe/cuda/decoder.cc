#include "trainperf/probe/cuda/decoder.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

constexpr size_t kMaxKnownNames = 16384;  // addresses; names are bounded by their own table
constexpr size_t kMaxCutOff = 65'536;
constexpr size_t kMaxCallers = 1024;

CopyDirection DirectionOf(uint8_t copy_kind) {
  switch (copy_kind) {  // CUpti_ActivityMemcpyKind; A: array, D: device memory
    case 1:             // HTOD
    case 3:             // HTOA
      return CopyDirection::kHostToDevice;
    case 2:  // DTOH
    case 4:  // ATOH
      return CopyDirection::kDeviceToHost;
    case 5:  // ATOA, ATOD, DTOA, DTOD
    case 6:
    case 7:
    case 8:
      return CopyDirection::kDeviceToDevice;
    case 9:
      return CopyDirection::kHostToHost;
    case 10:
      return CopyDirection::kPeerToPeer;
    default:
      return CopyDirection::kNone;
  }
}

MemoryKind MemoryOf(uint8_t kind) {
  switch (kind) {  // CUpti_ActivityMemoryKind
    case 1:
      return MemoryKind::kPageable;
    case 2:
      return MemoryKind::kPinned;
    case 3:  // device, array, device static
    case 4:
    case 6:
      return MemoryKind::kDevice;
    case 5:  // managed, managed static
    case 7:
      return MemoryKind::kManaged;
    default:
      return MemoryKind::kUnknown;
  }
}

std::string Demangled(const char* name) {
  if (strncmp(name, "_Z", 2) != 0) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &free);
  return status == 0 && text != nullptr ? text.get() : name;
}

constexpr size_t PrefixSize(uint32_t kind) {
  switch (kind) {
    case cupti::kKindConcurrentKernel:
      return sizeof(cupti::KernelRecord);
    case cupti::kKindMemcpy:
    case cupti::kKindMemcpy2:
      return sizeof(cupti::MemcpyRecord);
    case cupti::kKindMemset:
      return sizeof(cupti::MemsetRecord);
    case cupti::kKindRuntime:
    case cupti::kKindDriver:
    case cupti::kKindSynchronization:
      return sizeof(cupti::ApiRecord);
    case cupti::kKindOverhead:
      return sizeof(cupti::OverheadRecord);
    case cupti::kKindJit:
      return sizeof(cupti::JitRecord);
    default:
      return sizeof(cupti::Record);
  }
}

// Records are aligned to 8 bytes; their fields are read as they lie.
template <typename Type>
const Type& As(const cupti::Record* record) {
  return *reinterpret_cast<const Type*>(record);
}

}  // namespace

void Decoder::Decode(uint8_t* buffer, size_t valid, DecodedBatch* batch) {
  const uint8_t* const end = buffer + valid;
  cupti::Record* record = nullptr;
  while (next_record_(buffer, valid, &record) == cupti::kSuccess && record != nullptr) {
    ++stats_.records;
    if (reinterpret_cast<const uint8_t*>(record) + PrefixSize(record->kind) > end) {  // cut off
      ++stats_.bad;
      continue;
    }
    switch (record->kind) {
      case cupti::kKindConcurrentKernel:
        Kernel(As<cupti::KernelRecord>(record), batch);
        break;
      case cupti::kKindMemcpy:
        Copy(As<cupti::MemcpyRecord>(record), As<cupti::MemcpyRecord>(record).correlation, batch);
        break;
      case cupti::kKindMemcpy2:  // the same up to the stream
        Copy(As<cupti::MemcpyRecord>(record), As<cupti::MemcpyPeerRecord>(record).correlation, batch);
        break;
      case cupti::kKindMemset:
        Memset(As<cupti::MemsetRecord>(record), batch);
        break;
      case cupti::kKindRuntime:
      case cupti::kKindDriver:
        Api(As<cupti::ApiRecord>(record), batch);
        break;
      case cupti::kKindSynchronization:
        Sync(As<cupti::SyncRecord>(record), batch);
        break;
      case cupti::kKindOverhead:
        Overhead(As<cupti::OverheadRecord>(record), batch);
        break;
      case cupti::kKindJit:
        Jit(As<cupti::JitRecord>(record), batch);
        break;
      default:
        ++stats_.other;
    }
  }
}

int64_t Decoder::Count(uint8_t* buffer, size_t valid) {
  int64_t count = 0;
  cupti::Record* record = nullptr;
  while (next_record_(buffer, valid, &record) == cupti::kSuccess && record != nullptr) ++count;
  return count;
}

bool Decoder::Times(uint64_t start, uint64_t end, int64_t* start_ns, int64_t* end_ns) {
  if (start == 0 || end == 0) {
    ++stats_.zero_time;
    return false;
  }
  if (end < start) {
    ++stats_.bad;
    return false;
  }
  *start_ns = clock_->ToMonotonic(start);
  *end_ns = clock_->ToMonotonic(end);
  if (*end_ns < *start_ns) {  // the clock was set in between
    ++stats_.bad;
    return false;
  }
  return true;
}

bool Decoder::OpTimes(uint64_t start, uint64_t end, uint32_t correlation, DeviceOp* op, DecodedBatch* batch) {
  if ((start == 0 || end == 0) && batch->cut_off.size() < kMaxCutOff) {
    batch->cut_off.push_back(correlations_.Widen(correlation));
  }
  return Times(start, end, &op->start_ns, &op->end_ns);
}

uint32_t Decoder::NameOf(const char* name) {
  if (name == nullptr || *name == '\0') return 0;
  const auto known = known_names_.find(name);
  if (known != known_names_.end() && known->second.raw == name) return known->second.id;
  const uint32_t id = names_->Intern(Demangled(name));
  if (known != known_names_.end()) {
    known->second = {id, name};
  } else if (known_names_.size() < kMaxKnownNames) {
    known_names_.emplace(name, KnownName{id, name});
  }
  return id;
}

void Decoder::Kernel(const cupti::KernelRecord& record, DecodedBatch* batch) {
  DeviceOp op{};
  if (!OpTimes(record.start, record.end, record.correlation, &op, batch)) return;
  ++stats_.kernels;
  op.kind = DeviceOpKind::kKernel;
  op.correlation = correlations_.Widen(record.correlation);
  op.bytes = -1;
  op.name = NameOf(record.name);
  op.stream = record.stream;
  op.device = record.device;
  if (record.graph_node != 0) {
    op.flags |= kFromGraph;
    ++stats_.graph_kernels;
  }
  batch->ops.push_back(op);
}

void Decoder::Copy(const cupti::MemcpyRecord& record, uint32_t correlation, DecodedBatch* batch) {
  DeviceOp op{};
  if (!OpTimes(record.start, record.end, correlation, &op, batch)) return;
  ++stats_.copies;
  op.kind = DeviceOpKind::kMemcpy;
  op.direction = record.kind == cupti::kKindMemcpy2 ? CopyDirection::kPeerToPeer : DirectionOf(record.copy_kind);
  op.from = MemoryOf(record.from);
  op.to = MemoryOf(record.to);
  op.correlation = correlations_.Widen(correlation);
  op.bytes = static_cast<int64_t>(record.bytes);
  op.stream = record.stream;
  op.device = record.device;
  if (record.kind == cupti::kKindMemcpy && record.graph != 0) op.flags |= kFromGraph;
  batch->ops.push_back(op);
}

void Decoder::Memset(const cupti::MemsetRecord& record, DecodedBatch* batch) {
  DeviceOp op{};
  if (!OpTimes(record.start, record.end, record.correlation, &op, batch)) return;
  ++stats_.copies;
  op.kind = DeviceOpKind::kMemset;
  op.correlation = correlations_.Widen(record.correlation);
  op.bytes = static_cast<int64_t>(record.bytes);
  op.stream = record.stream;
  op.device = record.device;
  batch->ops.push_back(op);
}

void Decoder::Api(const cupti::ApiRecord& record, DecodedBatch* batch) {
  const auto api = record.kind == cupti::kKindDriver ? CudaApi::kDriver : CudaApi::kRuntime;
  const uint8_t call = HostCallOf(api, record.cbid);
  if (call == kNoHostCall) {
    ++stats_.other;
    return;
  }
  CudaCallRecord made{};
  if (record.process != pid_) {
    ++stats_.bad;
    return;
  }
  if (!Times(record.start, record.end, &made.start_ns, &made.end_ns)) return;
  ++stats_.calls;
  if (record.thread != last_caller_) NoteCaller(record.thread);
  made.correlation = correlations_.Widen(record.correlation);
  made.tid = record.thread;
  made.call = static_cast<HostCall>(call);
  made.failed = record.returned != 0;
  batch->calls.push_back(made);
}

void Decoder::AddCall(const LoggedCall& call, DecodedBatch* batch) {
  CudaCallRecord made{};
  made.start_ns = call.start_ns;
  made.end_ns = call.end_ns;
  made.correlation = correlations_.Widen(call.correlation);
  made.tid = call.tid;
  made.call = static_cast<HostCall>(HostCallOf(call.driver ? CudaApi::kDriver : CudaApi::kRuntime, call.cbid));
  made.failed = call.failed;
  ++stats_.calls;
  ++stats_.logged_calls;
  if (call.tid != last_caller_) NoteCaller(call.tid);
  batch->calls.push_back(made);
}

void Decoder::NoteCaller(uint32_t thread) {
  last_caller_ = thread;
  if (callers_.size() >= kMaxCallers) callers_.clear();  // threads come and go; those that live come again
  callers_.insert(thread);
}

void Decoder::Sync(const cupti::SyncRecord& record, DecodedBatch* batch) {
  // The call itself has its own record, with the thread; this one is folded into it, or stands for it where calls are
  // not traced. One stream's waiting for another keeps no thread.
  CudaCallRecord made{};
  switch (record.type) {
    case cupti::kSyncEvent:
      made.call = HostCall::kEventSync;
      break;
    case cupti::kSyncStream:
      made.call = HostCall::kStreamSync;
      break;
    case cupti::kSyncContext:
      made.call = HostCall::kDeviceSync;
      break;
    default:
      ++stats_.other;
      return;
  }
  if (!Times(record.start, record.end, &made.start_ns, &made.end_ns)) return;
  ++stats_.calls;
  made.correlation = correlations_.Widen(record.correlation);
  made.inner = true;
  batch->calls.push_back(made);
}

void Decoder::Overhead(const cupti::OverheadRecord& record, DecodedBatch* batch) {
  CudaCallRecord made{};
  switch (record.overhead) {
    case cupti::kOverheadModuleLoading:
    case cupti::kOverheadLazyLoading:
      made.call = HostCall::kModuleLoad;
      break;
    case cupti::kOverheadDriverCompiler:
      made.call = HostCall::kJit;
      break;
    case cupti::kOverheadCommandBufferFull:
      made.call = HostCall::kQueueFull;
      break;
    case cupti::kOverheadBufferFlush:
    case cupti::kOverheadInstrumentation:
    case cupti::kOverheadResource:
    case cupti::kOverheadBufferRequest:
      // CUPTI's own thread flushes for as long as the device copies: nobody waits for that.
      if (record.end > record.start && record.object_kind == cupti::kObjectThread && callers_.contains(record.thread)) {
        stats_.own_ns += clock_->ToMonotonic(record.end) - clock_->ToMonotonic(record.start);
      }
      ++stats_.other;
      return;
    default:
      ++stats_.other;
      return;
  }
  if (!Times(record.start, record.end, &made.start_ns, &made.end_ns)) return;
  ++stats_.calls;
  made.correlation = correlations_.Widen(record.correlation);
  made.tid = record.object_kind == cupti::kObjectThread ? record.thread : 0;
  made.inner = true;
  batch->calls.push_back(made);
}

void Decoder::Jit(const cupti::JitRecord& record, DecodedBatch* batch) {
  if (record.operation != cupti::kJitCompile) {  // its cache was read or written
    ++stats_.other;
    return;
  }
  CudaCallRecord made{};
  if (!Times(record.start, record.end, &made.start_ns, &made.end_ns)) return;
  ++stats_.calls;
  made.correlation = correlations_.Widen(record.correlation);
  made.call = HostCall::kJit;
  made.inner = true;
  batch->calls.push_back(made);
}

}  // namespace trainperf
