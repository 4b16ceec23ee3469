// Once a second, what the machine, the process and the step thread have used so far, for the run file.
//
//   HostReadings readings(&host);
//   readings.Begin(now_ns, &writer);                   // what does not change, and the first reading
//   readings.Look();                                   // at each wake-up
//   readings.Read(now_ns, step_thread, workers, &writer);  // each second
//   readings.End();                                    // after the last one
//
// Used by one thread.

#ifndef TRAINPERF_COLLECT_HOST_READINGS_H_
#define TRAINPERF_COLLECT_HOST_READINGS_H_

#include <cstdint>
#include <vector>

#include "trainperf/base/thread_table.h"
#include "trainperf/probe/cuda/nvml.h"
#include "trainperf/probe/host.h"
#include "trainperf/probe/machine.h"
#include "trainperf/probe/own_sockets.h"
#include "trainperf/probe/page_faults.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

class HostReadings {
 public:
  explicit HostReadings(const HostProbe* host) : host_(host) {}

  void Begin(int64_t now_ns, RunWriter* writer);
  void Look() { faults_.Look(); }
  // step_thread 0: not known yet; `workers`: pids of the DataLoader workers that live
  void Read(int64_t now_ns, ThreadId step_thread, const std::vector<int32_t>& workers, RunWriter* writer);
  void End() {
    sockets_.Close();
    nvml_.Close();
  }

 private:
  const HostProbe* const host_;
  PageFaults faults_;
  MachineProbe machine_;
  OwnSockets sockets_;
  NvmlProbe nvml_;
  std::vector<Counter> counters_;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_HOST_READINGS_H_
