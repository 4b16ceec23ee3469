#include "trainperf/probe/cuda/nvml.h"

#include <dlfcn.h>
#include <link.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/symbol.h"

namespace trainperf {
namespace {

constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kGpuTemperature = 0;             // nvmlTemperatureSensors_t
constexpr int kNoFunction = 13;                // NVML_ERROR_FUNCTION_NOT_FOUND
constexpr int kGpuLost = 15;                   // NVML_ERROR_GPU_IS_LOST

// To look for one among the loaded libraries reads the names of all: up to 10 ms where memory is cold.
uint64_t LibrariesEverLoaded() {
  uint64_t count = 0;
  const auto take = [](dl_phdr_info* first, size_t, void* to) {
    *static_cast<uint64_t*>(to) = first->dlpi_adds;
    return 1;  // no further
  };
  dl_iterate_phdr(take, &count);
  return count;
}

}  // namespace

std::string NvmlProbe::Error(int code) const {
  if (code == kNoFunction || error_string_ == nullptr) return absl::StrCat("NVML error ", code);
  return error_string_(code);
}

absl::Status NvmlProbe::Open() {
  handle_ = dlopen(library_.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle_ == nullptr) return absl::NotFoundError("no libnvidia-ml.so.1, which comes with the driver");
  int (*init)() = nullptr;
  TakeSymbol(handle_, "nvmlInit_v2", init);
  TakeSymbol(handle_, "nvmlErrorString", error_string_);
  TakeSymbol(handle_, "nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus_id_);
  TakeSymbol(handle_, "nvmlDeviceGetUtilizationRates", utilization_);
  TakeSymbol(handle_, "nvmlDeviceGetClockInfo", clock_);
  TakeSymbol(handle_, "nvmlDeviceGetMaxClockInfo", max_clock_);
  TakeSymbol(handle_, "nvmlDeviceGetPowerUsage", power_);
  TakeSymbol(handle_, "nvmlDeviceGetEnforcedPowerLimit", power_limit_);
  TakeSymbol(handle_, "nvmlDeviceGetMemoryInfo", memory_);
  TakeSymbol(handle_, "nvmlDeviceGetTemperature", temperature_);
  TakeSymbol(handle_, "nvmlDeviceGetCurrentClocksEventReasons", reasons_);
  if (reasons_ == nullptr) TakeSymbol(handle_, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons_);  // before 535
  if (init == nullptr || handle_by_bus_id_ == nullptr) return absl::UnimplementedError("an NVML without nvmlInit_v2");
  const int code = init();
  if (code != 0) return absl::UnavailableError(Error(code));
  TakeSymbol(handle_, "nvmlShutdown", shutdown_);  // only of what was begun; others of this process have counts too
  return absl::OkStatus();
}

// The library stays: another of the process may use it.
void NvmlProbe::Close() {
  if (shutdown_ != nullptr) shutdown_();
  shutdown_ = nullptr;
}

void NvmlProbe::Off(const std::string& why) {
  off_ = true;
  devices_.clear();
  tier_ = "off";
  why_ = why;
  Close();
}

bool NvmlProbe::Meet(uint32_t ordinal, const std::string& bus_id) {
  if (!begun_) {
    begun_ = true;
    const absl::Status opened = Open();
    if (!opened.ok()) {
      Off(std::string(opened.message()));
      return false;
    }
    tier_ = "nvml";
  }
  Device device = nullptr;
  const int code = handle_by_bus_id_(bus_id.c_str(), &device);
  if (code == 0) {
    devices_.emplace_back(ordinal, device);
  } else {
    unread_.insert(absl::StrCat("GPU ", ordinal, ": ", Error(code)));
  }
  return true;
}

void NvmlProbe::ReadDevice(uint32_t ordinal, Device device, std::vector<Counter>* counters) {
  bool lost = false;  // then there is no more to ask
  const auto read = [&](const char* name, auto* function, auto value_of, auto value, auto... sort) {
    if (lost) return;
    const int code = function == nullptr ? kNoFunction : function(device, sort..., &value);
    lost = code == kGpuLost;
    if (code == 0) {
      counters->push_back({absl::StrCat(name, ":", ordinal), static_cast<int64_t>(value_of(value))});
    } else {
      unread_.insert(absl::StrCat(name, ": ", Error(code)));
    }
  };
  const auto itself = [](auto value) { return value; };
  read(
      "gpu_busy_percent", utilization_, [](const Utilization& of) { return of.gpu; }, Utilization{});
  read(
      "gpu_memory_bytes", memory_, [](const Memory& of) { return of.used; }, Memory{});
  read("gpu_sm_mhz", clock_, itself, 0U, kSmClock);
  read("gpu_sm_max_mhz", max_clock_, itself, 0U, kSmClock);
  read("gpu_memory_mhz", clock_, itself, 0U, kMemoryClock);
  read("gpu_power_mw", power_, itself, 0U);
  read("gpu_power_limit_mw", power_limit_, itself, 0U);
  read("gpu_celsius", temperature_, itself, 0U, kGpuTemperature);
  read("gpu_throttle_reasons", reasons_, itself, 0ULL);
}

void NvmlProbe::Read(std::vector<Counter>* counters) {
  if (off_) return;
  if (!driver_.ok()) {
    const uint64_t libraries = LibrariesEverLoaded();
    if (libraries == libraries_) return;
    libraries_ = libraries;
    driver_ = CudaDriver::FindLoaded();
  }
  if (!driver_.ok()) return;
  for (const uint32_t ordinal : driver_->InUse()) {
    if (met_.size() >= kMaxDevices || !met_.insert(ordinal).second) continue;
    if (!Meet(ordinal, driver_->PciBusId(ordinal))) return;
  }
  if (!begun_) return;
  const size_t before = counters->size();
  const int64_t begin_ns = NowNs();
  for (const auto& [ordinal, device] : devices_) ReadDevice(ordinal, device, counters);
  slow_ = NowNs() - begin_ns > kMostNs ? slow_ + 1 : 0;
  why_ = absl::StrJoin(unread_, "; ");
  if (slow_ >= kMostSlow) {
    Off(absl::StrCat("a reading took longer than ", kMostNs / 1'000'000, " ms"));
  } else if (counters->size() == before) {
    Off(why_);
  }
}

}  // namespace trainperf
