// Tables device, device_step, device_kernel, device_copy and call: what the devices did, bounded like the steps.

#ifndef TRAINPERF_RUN_DEVICE_ROWS_H_
#define TRAINPERF_RUN_DEVICE_ROWS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/base/name_table.h"
#include "trainperf/run/run_part.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

// A row of table device_step after its two keys, in the order of its columns.
struct DeviceStepRow {
  int64_t wall_ns;
  int64_t busy_ns;
  int64_t kernels;
  int64_t kernel_ns;
  int64_t launches;
  int64_t copies;
  int64_t copy_ns;
  int64_t exposed_copy_ns;
  int64_t collective_ns;
  int64_t exposed_collective_ns;
  int64_t tiny_kernels;
  int64_t starved_gaps;
  int64_t between_ns;
  int64_t first_kernels;
  int64_t first_kernel_ns;
  int64_t queue_depth;
  int64_t incomplete;
  int64_t untraced;
  int64_t untraced_ns;
  int64_t idle_ns[kCauseCount];

  static DeviceStepRow Of(const DeviceStep& step, int64_t wall_ns);
  void Add(const DeviceStepRow& later);
};
inline constexpr int kDeviceStepColumns = 19 + kCauseCount;
static_assert(sizeof(DeviceStepRow) == kDeviceStepColumns * sizeof(int64_t));

class DeviceRows : public RunPart {
 public:
  static constexpr size_t kMaxKernels = 512;  // by name, in the file; the others as one

  // Of a device that has done nothing yet it is only remembered.
  void SetDevice(uint32_t id, const std::string& name, const std::string& description);
  void SetNames(const NameTable* names) { names_ = names; }
  const NameTable* names() const { return names_; }
  // `first_step` is of the row of table `step` that this one went into, which stands for at most `width` steps.
  void Add(const StepRecord& step, int64_t first_step, int64_t width);
  // No step has used a device yet.
  void ClearSteps();

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  struct Row {
    int64_t first_step;
    DeviceStepRow sums;
  };
  struct Kernel {
    int64_t count = 0;
    int64_t ns = 0;
    int64_t max_ns = 0;
    int64_t tiny = 0;
    int64_t steps = 0;
  };
  using CopyKey = std::tuple<uint8_t, uint8_t, uint8_t>;  // direction, from, to
  struct Copy {
    int64_t count = 0;
    int64_t bytes = 0;
    int64_t ns = 0;
    int64_t exposed_ns = 0;
    int64_t small = 0;
    int64_t steps = 0;
  };
  struct Device {
    std::string name;
    std::string description = "{}";
    int64_t lead_ns_median = 0;
    bool used = false;
    bool unwritten = false;
    std::vector<Row> rows;
    size_t unwritten_from = 0;
    bool sums_unwritten = false;
    absl::flat_hash_map<uint32_t, Kernel> kernels;
    std::map<CopyKey, Copy> copies;
  };
  struct Calls {
    int64_t count = 0;
    int64_t failed = 0;
    int64_t ns = 0;
    int64_t max_ns = 0;
    int64_t steps = 0;
    bool unwritten = true;
  };

  void MergeRows(int64_t width);
  absl::Status WriteKernels(Database& db, uint32_t id, const Device& device) const;

  const NameTable* names_ = nullptr;
  int64_t base_ = -1;  // the run's first step
  int64_t width_ = 1;
  std::map<uint32_t, Device> devices_;
  std::map<std::pair<ThreadId, uint8_t>, Calls> calls_;
  bool file_is_stale_ = false;  // rows have merged: table device_step is written anew
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_DEVICE_ROWS_H_
