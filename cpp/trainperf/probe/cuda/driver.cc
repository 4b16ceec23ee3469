#include "trainperf/probe/cuda/driver.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "trainperf/base/proc_text.h"
#include "trainperf/probe/cuda/symbol.h"

namespace trainperf {
namespace {

constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_*
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) escaped += c;
  }
  return escaped;
}

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Find() { return Open(RTLD_LAZY | RTLD_LOCAL); }

absl::StatusOr<CudaDriver> CudaDriver::FindLoaded() { return Open(RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD); }

absl::StatusOr<CudaDriver> CudaDriver::Open(int flags) {
  void* handle = dlopen("libcuda.so.1", flags);
  if (handle == nullptr) return absl::NotFoundError("no driver (libcuda.so.1)");
  CudaDriver driver;
  TakeSymbol(handle, "cuDeviceGet", driver.device_get_);
  TakeSymbol(handle, "cuDeviceGetCount", driver.device_get_count_);
  TakeSymbol(handle, "cuDeviceGetName", driver.device_get_name_);
  TakeSymbol(handle, "cuDeviceGetPCIBusId", driver.device_get_pci_bus_id_);
  TakeSymbol(handle, "cuDeviceGetAttribute", driver.device_get_attribute_);
  TakeSymbol(handle, "cuDeviceTotalMem_v2", driver.device_total_mem_);
  TakeSymbol(handle, "cuDevicePrimaryCtxGetState", driver.primary_ctx_get_state_);
  TakeSymbol(handle, "cuDriverGetVersion", driver.driver_get_version_);
  return driver;
}

std::vector<uint32_t> CudaDriver::InUse() const {
  std::vector<uint32_t> in_use;
  int count = 0;  // an error before cuInit: nothing exists
  if (device_get_count_ == nullptr || primary_ctx_get_state_ == nullptr || device_get_count_(&count) != 0)
    return in_use;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0, active = 0;
    unsigned flags = 0;
    if (device_get_ == nullptr || device_get_(&device, ordinal) != 0) continue;
    if (primary_ctx_get_state_(device, &flags, &active) == 0 && active != 0) {
      in_use.push_back(static_cast<uint32_t>(ordinal));
    }
  }
  return in_use;
}

std::string CudaDriver::PciBusId(uint32_t ordinal) const {
  int device = 0;
  char id[32] = "";
  if (device_get_ == nullptr || device_get_pci_bus_id_ == nullptr ||
      device_get_(&device, static_cast<int>(ordinal)) != 0 || device_get_pci_bus_id_(id, sizeof(id) - 1, device) != 0) {
    return "";
  }
  return id;
}

std::string CudaDriver::DeviceName(uint32_t ordinal) const {
  int device = 0;
  char name[256] = "";
  if (device_get_ == nullptr || device_get_name_ == nullptr || device_get_(&device, static_cast<int>(ordinal)) != 0 ||
      device_get_name_(name, sizeof(name) - 1, device) != 0) {
    return "";
  }
  return name;
}

int CudaDriver::Attribute(int attribute, int device) const {
  int value = -1;
  if (device_get_attribute_ == nullptr || device_get_attribute_(&value, attribute, device) != 0) return -1;
  return value;
}

std::string CudaDriver::DescribeDevice(uint32_t ordinal, const std::string& sys) const {
  std::string json = absl::StrCat("{\"name\": \"", Escaped(DeviceName(ordinal)), "\"");
  int device = 0;
  if (device_get_ != nullptr && device_get_(&device, static_cast<int>(ordinal)) == 0) {
    const int major = Attribute(kComputeMajor, device), minor = Attribute(kComputeMinor, device);
    if (major >= 0 && minor >= 0) absl::StrAppend(&json, ", \"compute\": \"", major, ".", minor, "\"");
    const int multiprocessors = Attribute(kMultiprocessorCount, device);
    if (multiprocessors > 0) absl::StrAppend(&json, ", \"multiprocessors\": ", multiprocessors);
    size_t bytes = 0;
    if (device_total_mem_ != nullptr && device_total_mem_(&bytes, device) == 0) {
      absl::StrAppend(&json, ", \"memory_bytes\": ", bytes);
    }
  }
  int node = -1;  // "-1" of a machine with one
  const std::string bus_id = absl::AsciiStrToLower(PciBusId(ordinal));
  if (absl::SimpleAtoi(absl::StripAsciiWhitespace(Slurp((sys + "/bus/pci/devices/" + bus_id + "/numa_node").c_str())),
                       &node) &&
      node >= 0) {
    absl::StrAppend(&json, ", \"numa_node\": ", node);
  }
  int version = 0;
  if (driver_get_version_ != nullptr && driver_get_version_(&version) == 0) {
    absl::StrAppend(&json, ", \"driver\": \"", version / 1000, ".", version % 1000 / 10, "\"");
  }
  return json + "}";
}

}  // namespace trainperf
