#include "trainperf/trace/classify.h"

#include <array>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace trainperf {
namespace {

bool StartsWith(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }
bool EndsWith(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}
bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Meaning Call(HostCall call) { return {RecordKind::kCall, static_cast<uint8_t>(call)}; }

const absl::flat_hash_map<absl::string_view, HostCall>& Calls() {
  static const auto* const calls = new absl::flat_hash_map<absl::string_view, HostCall>{
      {"cudaLaunchKernel", HostCall::kLaunchKernel},
      {"cudaLaunchKernelExC", HostCall::kLaunchKernel},
      {"cudaLaunchCooperativeKernel", HostCall::kLaunchKernel},
      {"cudaLaunchCooperativeKernelMultiDevice", HostCall::kLaunchKernel},
      {"cuLaunchKernel", HostCall::kLaunchKernel},
      {"cuLaunchKernelEx", HostCall::kLaunchKernel},
      {"cuLaunchCooperativeKernel", HostCall::kLaunchKernel},
      {"hipLaunchKernel", HostCall::kLaunchKernel},
      {"hipExtLaunchKernel", HostCall::kLaunchKernel},
      {"hipLaunchCooperativeKernel", HostCall::kLaunchKernel},
      {"hipModuleLaunchKernel", HostCall::kLaunchKernel},
      {"hipExtModuleLaunchKernel", HostCall::kLaunchKernel},
      {"hipHccModuleLaunchKernel", HostCall::kLaunchKernel},
      {"cudaGraphLaunch", HostCall::kLaunchGraph},
      {"cuGraphLaunch", HostCall::kLaunchGraph},
      {"hipGraphLaunch", HostCall::kLaunchGraph},
      {"cudaStreamSynchronize", HostCall::kStreamSync},
      {"cuStreamSynchronize", HostCall::kStreamSync},
      {"hipStreamSynchronize", HostCall::kStreamSync},
      {"cudaEventSynchronize", HostCall::kEventSync},
      {"cuEventSynchronize", HostCall::kEventSync},
      {"hipEventSynchronize", HostCall::kEventSync},
      {"cudaDeviceSynchronize", HostCall::kDeviceSync},
      {"cuCtxSynchronize", HostCall::kDeviceSync},
      {"hipDeviceSynchronize", HostCall::kDeviceSync},
      {"cudaMalloc", HostCall::kAlloc},
      {"cudaMallocAsync", HostCall::kAlloc},
      {"cudaMallocManaged", HostCall::kAlloc},
      {"cuMemAlloc", HostCall::kAlloc},
      {"cuMemCreate", HostCall::kAlloc},
      {"cuMemMap", HostCall::kAlloc},
      {"cuMemSetAccess", HostCall::kAlloc},
      {"cuMemAddressReserve", HostCall::kAlloc},
      {"hipMalloc", HostCall::kAlloc},
      {"hipMallocAsync", HostCall::kAlloc},
      {"cudaFree", HostCall::kFree},
      {"cudaFreeAsync", HostCall::kFree},
      {"cuMemFree", HostCall::kFree},
      {"cuMemUnmap", HostCall::kFree},
      {"cuMemRelease", HostCall::kFree},
      {"hipFree", HostCall::kFree},
      {"hipFreeAsync", HostCall::kFree},
      {"cudaHostAlloc", HostCall::kPinnedAlloc},
      {"cudaMallocHost", HostCall::kPinnedAlloc},
      {"cudaHostRegister", HostCall::kPinnedAlloc},
      {"hipHostMalloc", HostCall::kPinnedAlloc},
      {"cudaFreeHost", HostCall::kPinnedFree},
      {"cudaHostUnregister", HostCall::kPinnedFree},
      {"hipHostFree", HostCall::kPinnedFree},
      {"cuModuleLoadData", HostCall::kModuleLoad},
      {"cuModuleLoadDataEx", HostCall::kModuleLoad},
      {"cuModuleLoadFatBinary", HostCall::kModuleLoad},
      {"cuLibraryLoadData", HostCall::kModuleLoad},
      {"cudaLibraryLoadData", HostCall::kModuleLoad},
      {"cuFuncLoad", HostCall::kModuleLoad},
      {"cuKernelGetFunction", HostCall::kModuleLoad},
      {"hipModuleLoad", HostCall::kModuleLoad},
      {"hipModuleLoadData", HostCall::kModuleLoad},
      {"cuLinkComplete", HostCall::kJit},
      {"cuLinkAddData", HostCall::kJit},
  };
  return *calls;
}

MemoryKind MemoryOf(std::string_view word) {
  if (word == "Pageable") return MemoryKind::kPageable;
  if (word == "Pinned") return MemoryKind::kPinned;
  if (word == "Device" || word == "Device Static" || word == "Array") return MemoryKind::kDevice;
  if (word == "Managed" || word == "Managed Static") return MemoryKind::kManaged;
  return MemoryKind::kUnknown;
}

}  // namespace

Category CategoryOf(std::string_view category) {
  // By length first: this is asked of every event.
  switch (category.size()) {
    case 6:
      if (category == "cpu_op") return Category::kOp;
      if (category == "kernel" || category == "Kernel") return Category::kKernel;
      if (category == "Memcpy") return Category::kMemcpy;
      if (category == "Memset") return Category::kMemset;
      break;
    case 7:
      if (category == "Runtime") return Category::kRuntime;
      break;
    case 8:
      if (category == "Operator") return Category::kOp;
      break;
    case 10:
      if (category == "gpu_memcpy") return Category::kMemcpy;
      if (category == "gpu_memset") return Category::kMemset;
      break;
    case 11:
      if (category == "cuda_driver" || category == "hip_runtime") return Category::kRuntime;
      break;
    case 12:
      if (category == "cuda_runtime") return Category::kRuntime;
      break;
    case 15:
      if (category == "user_annotation") return Category::kAnnotation;
      if (category == "python_function") return Category::kPython;
      break;
    default:
      break;
  }
  return Category::kIgnored;
}

Meaning MeaningOfCall(std::string_view name) {
  if (const size_t version = name.rfind("_v"); version != std::string_view::npos && version + 3 >= name.size()) {
    name = name.substr(0, version);
  }
  for (const std::string_view thread_default : {std::string_view("_ptsz"), std::string_view("_ptds")}) {
    if (EndsWith(name, thread_default)) name.remove_suffix(thread_default.size());
  }
  const auto known = Calls().find(absl::string_view(name.data(), name.size()));
  if (known != Calls().end()) return Call(known->second);
  for (const std::string_view head : {"cudaMemcpy", "cuMemcpy", "hipMemcpy"}) {
    if (StartsWith(name, head)) return Call(HostCall::kMemcpy);
  }
  for (const std::string_view head : {"cudaMemset", "cuMemset", "hipMemset"}) {
    if (StartsWith(name, head)) return Call(HostCall::kMemset);
  }
  return {RecordKind::kOther, 0};
}

Meaning MeaningOfSpan(std::string_view name) {
  if (name.empty()) return {RecordKind::kOp, 0};
  const auto annotation = [](TraceBracket bracket) -> Meaning {
    return {RecordKind::kAnnotation, static_cast<uint8_t>(bracket)};
  };
  switch (name[0]) {
    case 'a':
      if (StartsWith(name, "autograd::engine::evaluate_function")) return {RecordKind::kBackwardOp, 0};
      break;
    case 'e':
      if (StartsWith(name, "enumerate(DataLoader)#")) return annotation(TraceBracket::kFetch);
      break;
    case 'O':
      if (StartsWith(name, "Optimizer.step#")) return annotation(TraceBracket::kOptimizer);
      break;
    default:
      break;
  }
  return {RecordKind::kOp, 0};
}

Meaning MeaningOfPython(std::string_view name) {
  if (StartsWith(name, "<built-in")) {
    for (const std::string_view waits : {"acquire", "sleep", "poll", "select", "recv", "recv_into", "accept", "wait",
                                         "waitpid", "read", "readinto", "connect"}) {
      // "<built-in function sleep>", "<built-in method acquire of _thread.lock object at 0x7f..>"
      const size_t at = name.find(waits);
      if (at == std::string_view::npos || at == 0 || name[at - 1] != ' ') continue;
      const char after = at + waits.size() < name.size() ? name[at + waits.size()] : '>';
      if (after == '>' || after == ' ') return {RecordKind::kWaiting, 0};
    }
    return {RecordKind::kPython, 0};
  }
  const auto is = [&](std::string_view file, std::string_view function) {
    return EndsWith(name, function) && Contains(name, file) && name[name.size() - function.size() - 1] == ' ';
  };
  if (is("torch/autograd/__init__.py(", "backward")) {
    return {RecordKind::kPython, static_cast<uint8_t>(TraceBracket::kBackward)};
  }
  if (is("torch/serialization.py(", "save")) {
    return {RecordKind::kPython, static_cast<uint8_t>(TraceBracket::kCheckpoint)};
  }
  return {RecordKind::kPython, 0};
}

int64_t StepNumber(std::string_view name) {
  constexpr std::string_view kHead = "ProfilerStep#";
  if (!StartsWith(name, kHead) || name.size() == kHead.size() || name.size() > kHead.size() + 15) return -1;
  int64_t number = 0;
  for (const char c : name.substr(kHead.size())) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

void DescribeCopy(std::string_view name, DeviceOp* op) {
  constexpr std::array<std::pair<std::string_view, CopyDirection>, 10> kDirections = {{
      {"HtoD", CopyDirection::kHostToDevice},
      {"DtoH", CopyDirection::kDeviceToHost},
      {"DtoD", CopyDirection::kDeviceToDevice},
      {"PtoP", CopyDirection::kPeerToPeer},
      {"HtoH", CopyDirection::kHostToHost},
      {"HostToDevice", CopyDirection::kHostToDevice},
      {"DeviceToHost", CopyDirection::kDeviceToHost},
      {"DeviceToDevice", CopyDirection::kDeviceToDevice},
      {"PeerToPeer", CopyDirection::kPeerToPeer},
      {"HostToHost", CopyDirection::kHostToHost},
  }};
  for (const auto& [word, direction] : kDirections) {
    if (Contains(name, word)) op->direction = direction;
  }
  const size_t open = name.find('(');
  const size_t arrow = name.find(" -> ", open == std::string_view::npos ? 0 : open);
  if (open == std::string_view::npos || arrow == std::string_view::npos) return;
  op->from = MemoryOf(name.substr(open + 1, arrow - open - 1));
  std::string_view to = name.substr(arrow + 4);
  op->to = MemoryOf(to.substr(0, to.find(')')));
}

}  // namespace trainperf
