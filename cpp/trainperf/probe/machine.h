// What the machine's disks, networks and memory did so far, and how long tasks stalled for want of each (PSI).
//
//   MachineProbe machine;
//   machine.Read(workers, &counters);       // about 0.1 ms; once a second
//
// Each counter grows from reading to reading, and is named by what it counts, its unit, and of which device:
//   disk_read_bytes:sda  disk_written_bytes:sda  disk_busy_ns:sda     of disks, not of partitions or what lies on disks
//   net_received_bytes:eth0  net_sent_bytes:eth0                      of network cards, or what a container has for one
//   psi_cpu_ns  psi_memory_ns  psi_io_ns                              some task of the machine stalled
//   major_faults  swapped_in_bytes  swapped_out_bytes                 of the machine
//   own_read_bytes  own_written_bytes                                 this process and its workers, of storage
// And of the CPUs, sixteen in each, what they did since the reading before (no counters):
//   cpu_levels:0   of CPU 0 the lowest four bits: 0: it is not there; 1: idle ... 15: busy all the time
//   irq_levels:0                                                      likewise, with interrupts
// One that cannot be read is left out. Used by one thread.

#ifndef TRAINPERF_PROBE_MACHINE_H_
#define TRAINPERF_PROBE_MACHINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainperf/event/counter.h"

namespace trainperf {

class MachineProbe {
 public:
  static constexpr size_t kMaxCpus = 256;
  static constexpr size_t kMaxDevices = 16;  // of disks, and of networks: a reading is kept for each second

  // `proc`, `sys`: where they are mounted.
  explicit MachineProbe(std::string proc = "/proc", std::string sys = "/sys");

  // `workers`: pids of the DataLoader workers that live.
  void Read(const std::vector<int32_t>& workers, std::vector<Counter>* counters);

 private:
  struct Storage {
    int64_t read_bytes;
    int64_t written_bytes;
  };

  struct CpuTicks {
    int64_t busy, interrupts, all;
  };

  void ReadCpus(std::vector<Counter>* counters);
  void ReadDisks(std::vector<Counter>* counters);
  void ReadNetworks(std::vector<Counter>* counters);
  void ReadPressure(const char* resource, std::vector<Counter>* counters) const;
  void ReadMemory(std::vector<Counter>* counters) const;
  void ReadOwn(const std::vector<int32_t>& workers, std::vector<Counter>* counters);
  bool ReadStorage(const std::string& pid, Storage* storage) const;
  bool Exists(const std::string& path) const;

  const std::string proc_, sys_;
  std::map<size_t, CpuTicks> cpus_;      // as they were read last
  std::map<std::string, bool> is_disk_;  // by the name of a block device
  std::map<std::string, bool> is_card_;
  std::map<int32_t, Storage> workers_;  // as they were read last
  Storage of_workers_{};                // all so far, those that are gone included
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_MACHINE_H_
