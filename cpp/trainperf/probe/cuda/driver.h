// The CUDA driver, if there is one: looked at, never initialised.
//
//   auto driver = CudaDriver::Find();
//   driver.ok() && !driver->InUse().empty();
//
// Thread-safe. No call makes a context or initialises CUDA: before the program has done that, they say "not known".

#ifndef TRAINPERF_PROBE_CUDA_DRIVER_H_
#define TRAINPERF_PROBE_CUDA_DRIVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainperf {

class CudaDriver {
 public:
  // NotFound "no driver (libcuda.so.1)" when the machine has none.
  static absl::StatusOr<CudaDriver> Find();
  // The same of a driver that the program has loaded itself.
  static absl::StatusOr<CudaDriver> FindLoaded();

  // Ordinals of the devices whose primary context exists already; once one does, attaching is late.
  std::vector<uint32_t> InUse() const;
  // "0000:07:00.0"; "" when it is not known.
  std::string PciBusId(uint32_t device) const;
  // "NVIDIA H100 80GB HBM3"; "" when it is not known.
  std::string DeviceName(uint32_t device) const;
  // JSON: {"name": ..., "compute": "9.0", "multiprocessors": 132, "memory_bytes": ..., "driver": "13.0",
  // "numa_node": 1}. `sys`: where that is mounted.
  std::string DescribeDevice(uint32_t device, const std::string& sys = "/sys") const;

 private:
  static absl::StatusOr<CudaDriver> Open(int flags);
  int Attribute(int attribute, int device) const;  // -1: not known

  int (*device_get_)(int*, int) = nullptr;
  int (*device_get_count_)(int*) = nullptr;
  int (*device_get_name_)(char*, int, int) = nullptr;
  int (*device_get_pci_bus_id_)(char*, int, int) = nullptr;
  int (*device_get_attribute_)(int*, int, int) = nullptr;
  int (*device_total_mem_)(size_t*, int) = nullptr;
  int (*primary_ctx_get_state_)(int, unsigned*, int*) = nullptr;
  int (*driver_get_version_)(int*) = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_DRIVER_H_
