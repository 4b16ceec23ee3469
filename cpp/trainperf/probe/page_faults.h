// What the kernel does for memory that a process takes from it and gives back: each page that it gives is a fault of
// the thread that first writes to it, and is cleared before.
//
//   PageFaults faults;
//   faults.Look();                                        // about 2 us; at each wake of the collector
//   FaultReading reading = faults.Read(native_tid);       // about 10 us; once a second
//   int64_t ns = MeasurePageFaultNs();                    // what one costs here: 0.2 ms, once
//
// Used by one thread.

#ifndef TRAINPERF_PROBE_PAGE_FAULTS_H_
#define TRAINPERF_PROBE_PAGE_FAULTS_H_

#include <cstdint>

namespace trainperf {

struct FaultReading {
  // Of the thread, so far; -1: not known, or there is no such thread.
  int64_t faults = -1;     // minor: nothing was read from a disk
  int64_t system_ns = -1;  // CPU time in the kernel
  // The most that the process' private writable memory shrank by between two looks, of those since the last Read();
  // -1: it was not seen twice.
  int64_t returned_bytes = -1;
};

class PageFaults {
 public:
  PageFaults();
  ~PageFaults();
  PageFaults(const PageFaults&) = delete;
  PageFaults& operator=(const PageFaults&) = delete;

  void Look();
  FaultReading Read(int32_t native_tid);

 private:
  const int statm_;  // -1: there is none
  int64_t looks_ = 0;
  int64_t most_bytes_ = 0;
  int64_t returned_bytes_ = 0;
};

int64_t PageBytes();
// CPU time of one fault on new memory, the median of some rounds; -1 where no memory is given.
int64_t MeasurePageFaultNs();

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_PAGE_FAULTS_H_
