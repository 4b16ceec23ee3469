#include "trainperf/probe/cuda/cupti_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainperf/probe/cuda/symbol.h"

namespace trainperf {
namespace {

constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12"};

// A copy that is mapped under another name than the loader knows it by (a wheel that renamed it).
std::string MappedCopy() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const size_t name = line.rfind('/');
    if (absl::StartsWith(line.substr(name + 1), "libcupti") && !absl::StrContains(line, " (deleted)")) {
      return line.substr(at);
    }
  }
  return "";
}

void* FindLoaded() {
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOLOAD | RTLD_NOW)) return handle;
  }
  const std::string mapped = MappedCopy();
  return mapped.empty() ? nullptr : dlopen(mapped.c_str(), RTLD_NOLOAD | RTLD_NOW);
}

absl::StatusOr<void*> Open(const std::vector<std::string>& folders, const std::string& path) {
  if (void* loaded = FindLoaded()) return loaded;
  if (!path.empty()) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* why = dlerror();
    return absl::NotFoundError(absl::StrCat("TRAINPERF_CUPTI_PATH: ", why != nullptr ? why : path));
  }
  for (const std::string& folder : folders) {
    for (const char* name : kNames) {
      const std::string file = absl::StrCat(folder, "/", name);
      if (access(file.c_str(), R_OK) != 0) continue;
      if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return absl::NotFoundError(absl::StrCat("no ", absl::StrJoin(kNames, " or "),
                                          " (pip install nvidia-cuda-cupti, or set TRAINPERF_CUPTI_PATH to the file)"));
}

}  // namespace

absl::StatusOr<CuptiApi> CuptiApi::Load(const std::vector<std::string>& folders, const std::string& path) {
  absl::StatusOr<void*> handle = Open(folders, path);
  if (!handle.ok()) return handle.status();
  CuptiApi api;
  TakeSymbol(*handle, "cuptiGetVersion", api.GetVersion);
  TakeSymbol(*handle, "cuptiGetTimestamp", api.GetTimestamp);
  TakeSymbol(*handle, "cuptiGetResultString", api.GetResultString);
  TakeSymbol(*handle, "cuptiSubscribe", api.Subscribe);
  TakeSymbol(*handle, "cuptiSubscribe_v2", api.SubscribeV2);
  TakeSymbol(*handle, "cuptiUnsubscribe", api.Unsubscribe);
  TakeSymbol(*handle, "cuptiEnableCallback", api.EnableCallback);
  TakeSymbol(*handle, "cuptiActivityRegisterCallbacks", api.ActivityRegisterCallbacks);
  TakeSymbol(*handle, "cuptiActivityEnable", api.ActivityEnable);
  TakeSymbol(*handle, "cuptiActivityDisable", api.ActivityDisable);
  TakeSymbol(*handle, "cuptiActivityFlushAll", api.ActivityFlushAll);
  TakeSymbol(*handle, "cuptiActivityGetNextRecord", api.ActivityGetNextRecord);
  TakeSymbol(*handle, "cuptiActivityGetNumDroppedRecords", api.ActivityGetNumDroppedRecords);
  TakeSymbol(*handle, "cuptiActivitySetAttribute", api.ActivitySetAttribute);
  TakeSymbol(*handle, "cuptiActivityEnableRuntimeApi", api.ActivityEnableRuntimeApi);
  TakeSymbol(*handle, "cuptiActivityEnableDriverApi", api.ActivityEnableDriverApi);
  TakeSymbol(*handle, "cuptiSetThreadIdType", api.SetThreadIdType);
  TakeSymbol(*handle, "cuptiGetThreadIdType", api.GetThreadIdType);

  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(api.GetVersion), &info) != 0 && info.dli_fname != nullptr) {
    api.file = info.dli_fname;
  }
  if (api.GetVersion == nullptr || api.GetTimestamp == nullptr || api.Subscribe == nullptr ||
      api.ActivityRegisterCallbacks == nullptr || api.ActivityEnable == nullptr || api.ActivityDisable == nullptr ||
      api.ActivityFlushAll == nullptr || api.ActivityGetNextRecord == nullptr) {
    return absl::UnimplementedError(absl::StrCat(path.empty() ? api.file : path, " is no CUPTI that traces activity"));
  }
  const cupti::Result result = api.GetVersion(&api.version);
  if (result != cupti::kSuccess) return absl::UnavailableError(api.Error("cuptiGetVersion", result));
  if (api.version < cupti::kVersion12_4) {
    return absl::UnimplementedError(absl::StrCat(
        "CUPTI ", api.VersionName(), " is older than CUDA 12.4's (API 22): install a newer torch or CUPTI"));
  }
  if (api.version == cupti::kVersion13_0) {
    return absl::UnimplementedError(
        "CUPTI 13.0 without its Update 1 can hang and crash: install nvidia-cuda-cupti >= 13.0.85 (or another torch)");
  }
  api.can.filter_calls = api.version >= cupti::kVersion12_5 && api.ActivityEnableRuntimeApi != nullptr &&
                         api.ActivityEnableDriverApi != nullptr;
  api.can.refuse_buffers = api.version >= cupti::kVersion12_9;
  api.can.per_thread_default = api.version >= cupti::kVersion13_0;
  return api;
}

std::string CuptiApi::VersionName() const {
  if (version < 100000) return absl::StrCat("API ", version);
  return absl::StrCat(version / 10000, ".", version / 100 % 100, " (API ", version, ")");
}

std::string CuptiApi::Error(const char* call, cupti::Result result) const {
  const char* name = nullptr;
  if (GetResultString != nullptr) GetResultString(result, &name);
  return absl::StrCat(call, ": ", name != nullptr ? name : "CUPTI error", " (", result, ")");
}

}  // namespace trainperf
