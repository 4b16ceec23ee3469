#include "trainperf/run/device_rows.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "trainperf/run/words.h"
#include "trainperf/timeline/kernel_names.h"

namespace trainperf {
namespace {

constexpr size_t kMaxCalls = 4096;  // threads and calls; beyond, they count as thread 0's

const std::string& InsertDeviceStepSql() {
  static const std::string& sql = *[] {
    auto* text = new std::string("REPLACE INTO device_step VALUES (?, ?");
    for (int i = 0; i < kDeviceStepColumns; ++i) absl::StrAppend(text, ", ?");
    absl::StrAppend(text, ")");
    return text;
  }();
  return sql;
}

}  // namespace

DeviceStepRow DeviceStepRow::Of(const DeviceStep& step, int64_t wall_ns) {
  DeviceStepRow row{};
  if (step.untraced) {
    row.untraced = 1;
    row.untraced_ns = wall_ns;
    return row;
  }
  row.wall_ns = row.busy_ns = step.busy_ns;
  row.kernels = step.kernels;
  row.kernel_ns = step.kernel_ns;
  row.launches = step.launches;
  row.copies = step.copies;
  row.copy_ns = step.copy_ns;
  row.exposed_copy_ns = step.exposed_copy_ns;
  row.collective_ns = step.collective_ns;
  row.exposed_collective_ns = step.exposed_collective_ns;
  row.tiny_kernels = step.tiny_kernels;
  row.starved_gaps = step.starved_gaps;
  row.between_ns = step.between_ns;
  row.first_kernels = step.first_kernel_ns >= 0 ? 1 : 0;
  row.first_kernel_ns = std::max<int64_t>(step.first_kernel_ns, 0);
  row.queue_depth = step.queue_depth;
  row.incomplete = step.incomplete ? 1 : 0;
  for (int cause = 0; cause < kCauseCount; ++cause) {
    row.idle_ns[cause] = step.idle_ns[cause];
    row.wall_ns += step.idle_ns[cause];
  }
  return row;
}

void DeviceStepRow::Add(const DeviceStepRow& later) {
  int64_t* const sums = &wall_ns;
  const int64_t* const more = &later.wall_ns;
  for (int i = 0; i < kDeviceStepColumns; ++i) sums[i] += more[i];
}

void DeviceRows::SetDevice(uint32_t id, const std::string& name, const std::string& description) {
  Device& device = devices_[id];
  device.name = name;
  device.description = description.empty() ? "{}" : description;
  device.unwritten = true;
}

void DeviceRows::Add(const StepRecord& step, int64_t first_step, int64_t width) {
  if (base_ < 0) base_ = step.index;
  if (width != width_) MergeRows(width);
  for (const CallSum& call : step.calls) {
    std::pair<ThreadId, uint8_t> key = {call.thread, static_cast<uint8_t>(call.call)};
    if (calls_.size() >= kMaxCalls && calls_.find(key) == calls_.end()) key.first = 0;
    Calls& calls = calls_[key];
    calls.count += call.count;
    calls.failed += call.failed;
    calls.ns += call.ns;
    calls.max_ns = std::max(calls.max_ns, call.max_ns);
    ++calls.steps;
    calls.unwritten = true;
  }
  for (const DeviceStep& of_step : step.devices) {
    Device& device = devices_[of_step.device];
    device.used = device.unwritten = device.sums_unwritten = true;
    device.lead_ns_median = of_step.lead_ns_median;
    const DeviceStepRow row = DeviceStepRow::Of(of_step, step.end_ns - step.start_ns);
    if (!device.rows.empty() && device.rows.back().first_step == first_step) {
      device.rows.back().sums.Add(row);
      device.unwritten_from = std::min(device.unwritten_from, device.rows.size() - 1);
    } else {
      device.rows.push_back({first_step, row});
    }
    for (const KernelSum& sum : of_step.kernel_sums) {
      Kernel& kernel = device.kernels[sum.name];
      kernel.count += sum.count;
      kernel.ns += sum.ns;
      kernel.max_ns = std::max(kernel.max_ns, sum.max_ns);
      kernel.tiny += sum.tiny;
      ++kernel.steps;
    }
    for (const CopySum& sum : of_step.copy_sums) {
      Copy& copy = device.copies[{static_cast<uint8_t>(sum.direction), static_cast<uint8_t>(sum.from),
                                  static_cast<uint8_t>(sum.to)}];
      copy.count += sum.count;
      copy.bytes += sum.bytes;
      copy.ns += sum.ns;
      copy.exposed_ns += sum.exposed_ns;
      copy.small += sum.small;
      ++copy.steps;
    }
  }
}

void DeviceRows::ClearSteps() {
  for (auto& [id, device] : devices_) {
    Device known;
    known.name = std::move(device.name);
    known.description = std::move(device.description);
    device = std::move(known);
  }
  calls_.clear();
  base_ = -1;
  width_ = 1;
}

// As the rows of table `step` merge, so do these.
void DeviceRows::MergeRows(int64_t width) {
  width_ = width;
  for (auto& [id, device] : devices_) {
    size_t merged = 0;
    for (const Row& row : device.rows) {
      const int64_t first_step = base_ + (row.first_step - base_) / width * width;
      if (merged > 0 && device.rows[merged - 1].first_step == first_step) {
        device.rows[merged - 1].sums.Add(row.sums);
      } else {
        device.rows[merged++] = {first_step, row.sums};
      }
    }
    device.rows.resize(merged);
    device.unwritten_from = 0;
  }
  file_is_stale_ = true;
}

absl::Status DeviceRows::Write(Database& db) {
  if (file_is_stale_) TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM device_step"));
  for (const auto& [id, device] : devices_) {
    if (!device.used) continue;
    if (device.unwritten) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO device VALUES (?, ?, ?, ?)", id, device.name, device.description,
                                       device.lead_ns_median));
    }
    for (size_t i = device.unwritten_from; i < device.rows.size(); ++i) {
      int64_t values[2 + kDeviceStepColumns] = {device.rows[i].first_step, id};
      std::copy_n(&device.rows[i].sums.wall_ns, kDeviceStepColumns, values + 2);
      TRAINPERF_RETURN_IF_ERROR(db.RunWithValues(InsertDeviceStepSql().c_str(), values, 2 + kDeviceStepColumns));
    }
    if (!device.sums_unwritten) continue;
    TRAINPERF_RETURN_IF_ERROR(WriteKernels(db, id, device));
    for (const auto& [key, copy] : device.copies) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO device_copy VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id,
                                       WordOf(kCopyDirectionNames, std::get<0>(key)),
                                       WordOf(kMemoryKindNames, std::get<1>(key)),
                                       WordOf(kMemoryKindNames, std::get<2>(key)), copy.count, copy.bytes, copy.ns,
                                       copy.exposed_ns, copy.small, copy.steps));
    }
  }
  for (const auto& [key, calls] : calls_) {
    if (!calls.unwritten) continue;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO call VALUES (?, ?, ?, ?, ?, ?, ?)", key.first,
                                     WordOf(kHostCallNames, key.second), calls.count, calls.failed, calls.ns,
                                     calls.max_ns, calls.steps));
  }
  return absl::OkStatus();
}

absl::Status DeviceRows::WriteKernels(Database& db, uint32_t id, const Device& device) const {
  std::vector<std::pair<uint32_t, const Kernel*>> order;
  order.reserve(device.kernels.size());
  for (const auto& [name, kernel] : device.kernels) order.emplace_back(name, &kernel);
  const auto name_of = [this](uint32_t name) { return names_ != nullptr ? names_->name(name) : std::string(); };
  const auto costlier = [&](const auto& a, const auto& b) {
    if (a.second->ns != b.second->ns) return a.second->ns > b.second->ns;
    return name_of(a.first) < name_of(b.first);  // ids tell only who came first
  };
  const size_t shown = std::min(order.size(), kMaxKernels);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), costlier);
  int64_t position = 0;
  const auto put = [&](const std::string& name, const Kernel& kernel, int64_t folded) {
    const KernelClass kernel_class = folded > 0 ? KernelClass{} : ClassifyKernel(name);
    return db.Run("REPLACE INTO device_kernel VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id, position++, name,
                  WordOf(kKernelKindNames, kernel_class.kind), kernel_class.eligible ? 1 : 0, kernel.count, kernel.ns,
                  kernel.max_ns, kernel.tiny, kernel.steps, folded);
  };
  for (size_t i = 0; i < shown; ++i) {
    const auto& [name, kernel] = order[i];
    TRAINPERF_RETURN_IF_ERROR(put(name_of(name), *kernel, 0));
  }
  if (shown == order.size()) return absl::OkStatus();
  Kernel rest;
  for (size_t i = shown; i < order.size(); ++i) {
    const Kernel& kernel = *order[i].second;
    rest.count += kernel.count;
    rest.ns += kernel.ns;
    rest.max_ns = std::max(rest.max_ns, kernel.max_ns);
    rest.tiny += kernel.tiny;
    rest.steps = std::max(rest.steps, kernel.steps);  // which steps they were is not known any more: a lower bound
  }
  return put("(other)", rest, static_cast<int64_t>(order.size() - shown));
}

void DeviceRows::Written() {
  file_is_stale_ = false;
  for (auto& [id, device] : devices_) {
    device.unwritten = device.sums_unwritten = false;
    device.unwritten_from = device.rows.size();
  }
  for (auto& [key, calls] : calls_) calls.unwritten = false;
}

void DeviceRows::MarkAllUnwritten() {
  file_is_stale_ = true;
  for (auto& [id, device] : devices_) {
    device.unwritten = device.sums_unwritten = true;
    device.unwritten_from = 0;
  }
  for (auto& [key, calls] : calls_) calls.unwritten = true;
}

}  // namespace trainperf
