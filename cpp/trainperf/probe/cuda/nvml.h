// How fast the GPUs that this process uses may run, once a second: clocks, power, what holds the clocks down (NVML).
//
//   NvmlProbe nvml;
//   nvml.Read(&counters);                   // once a second; the first time that there is a GPU also starts NVML
//   nvml.tier(), nvml.why();                // "" while no GPU is in use
//
// Adds for each GPU, by its CUDA ordinal, as it is now and not "so far":
//   gpu_busy_percent:0  gpu_sm_mhz:0  gpu_sm_max_mhz:0  gpu_memory_mhz:0  gpu_power_mw:0  gpu_power_limit_mw:0
//   gpu_memory_bytes:0                      used on the GPU, by anybody
//   gpu_celsius:0
//   gpu_throttle_reasons:0                  bits, NVML's clocks event reasons
// One that cannot be read is left out. Never initialises CUDA, nor loads its driver. Used by one thread.

#ifndef TRAINPERF_PROBE_CUDA_NVML_H_
#define TRAINPERF_PROBE_CUDA_NVML_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainperf/event/counter.h"
#include "trainperf/probe/cuda/driver.h"

namespace trainperf {

class NvmlProbe {
 public:
  static constexpr size_t kMaxDevices = 4;        // of a process: a reading is kept for each second
  static constexpr int64_t kMostNs = 20'000'000;  // a reading that takes longer costs too much
  static constexpr int kMostSlow = 3;             // in succession; then the probe is off

  explicit NvmlProbe(std::string library = "libnvidia-ml.so.1") : library_(std::move(library)) {}
  ~NvmlProbe() { Close(); }
  NvmlProbe(const NvmlProbe&) = delete;
  NvmlProbe& operator=(const NvmlProbe&) = delete;

  void Read(std::vector<Counter>* counters);
  void Close();  // after the last reading
  const std::string& tier() const { return tier_; }
  const std::string& why() const { return why_; }

 private:
  using Device = void*;  // nvmlDevice_t

  struct Utilization {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  absl::Status Open();
  void Off(const std::string& why);
  bool Meet(uint32_t ordinal, const std::string& bus_id);
  void ReadDevice(uint32_t ordinal, Device device, std::vector<Counter>* counters);
  std::string Error(int code) const;

  const std::string library_;
  absl::StatusOr<CudaDriver> driver_ = absl::NotFoundError("not loaded yet");
  uint64_t libraries_ = 0;  // that the process had ever loaded when the driver was last looked for
  void* handle_ = nullptr;
  bool begun_ = false, off_ = false;
  int slow_ = 0;
  std::vector<std::pair<uint32_t, Device>> devices_;
  std::set<uint32_t> met_;
  std::set<std::string> unread_;  // "gpu_power_mw: Insufficient Permissions"
  std::string tier_, why_;

  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*handle_by_bus_id_)(const char*, Device*) = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*clock_)(Device, int, unsigned*) = nullptr;
  int (*max_clock_)(Device, int, unsigned*) = nullptr;
  int (*power_)(Device, unsigned*) = nullptr;
  int (*power_limit_)(Device, unsigned*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*temperature_)(Device, int, unsigned*) = nullptr;
  int (*reasons_)(Device, unsigned long long*) = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_NVML_H_
