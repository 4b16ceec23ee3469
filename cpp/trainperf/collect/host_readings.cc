#include "trainperf/collect/host_readings.h"

#include <atomic>

#include "absl/strings/str_cat.h"

namespace trainperf {

void HostReadings::Begin(int64_t now_ns, RunWriter* writer) {
  Read(now_ns, 0, {}, writer);
  const int64_t page_fault_ns = MeasurePageFaultNs();
  if (page_fault_ns < 0) return;
  writer->SetMeta("page_bytes", absl::StrCat(PageBytes()));
  writer->SetMeta("page_fault_ns", absl::StrCat(page_fault_ns));
}

void HostReadings::Read(int64_t now_ns, ThreadId step_thread, const std::vector<int32_t>& workers, RunWriter* writer) {
  const HostFacts facts = host_->Read();
  HostReading reading{};
  reading.at_ns = now_ns;
  reading.process_cpu_ns = facts.process_cpu_ns;
  reading.machine_busy_ns = facts.machine_busy_ns;
  reading.machine_idle_ns = facts.machine_idle_ns;
  reading.throttled_ns = host_->ReadThrottledNs();
  reading.rss_bytes = facts.rss_bytes;
  reading.threads = facts.threads;
  reading.runnable = facts.runnable;
  const FaultReading faults = faults_.Read(
      step_thread == 0 ? -1 : ThreadTable::Get().info(step_thread).native_tid.load(std::memory_order_relaxed));
  reading.faults = faults.faults;
  reading.system_ns = faults.system_ns;
  reading.returned_bytes = faults.returned_bytes;
  machine_.Read(workers, &counters_);
  sockets_.Read(workers, &counters_);
  nvml_.Read(&counters_);
  if (!nvml_.tier().empty()) writer->SetTier("nvml", nvml_.tier(), nvml_.why());
  writer->AddHostReading(reading, counters_);
}

}  // namespace trainperf
