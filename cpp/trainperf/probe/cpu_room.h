// Which CPUs a thread or a process may run on: its affinity, which a library, taskset or a launcher may narrow.
//
//   CpuRoom room = ReadCpuRoom(native_tid);   // about 1 us; {2, "0,3"}; count -1: there is no such thread
//   int32_t most = MostCpus();                // to which the calling thread could widen its own: its cpuset's
//
// Thread-safe.

#ifndef TRAINPERF_PROBE_CPU_ROOM_H_
#define TRAINPERF_PROBE_CPU_ROOM_H_

#include <cstdint>
#include <string>

namespace trainperf {

struct CpuRoom {
  int32_t count = -1;
  std::string cpus;  // as the kernel lists them: "0-3,8"

  bool operator==(const CpuRoom& other) const { return count == other.count && cpus == other.cpus; }
};

CpuRoom ReadCpuRoom(int32_t native_tid);

// Asks the kernel for all CPUs, for a moment and for the calling thread alone; -1: it refuses.
int32_t MostCpus();

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CPU_ROOM_H_
