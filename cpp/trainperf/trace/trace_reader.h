// Reads a torch.profiler (Kineto) trace, on several threads, in memory that does not grow with the file.
//
//   TRAINPERF_ASSIGN_OR_RETURN(auto trace, ReadTrace("t.json.gz", {}));
//   trace->host.Merge() ...    // host events by start; trace->device likewise by end
//
// What is broken is left out and told in trace->notes: a cut file gives what could be read of it.

#ifndef TRAINPERF_TRACE_TRACE_READER_H_
#define TRAINPERF_TRACE_TRACE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainperf/trace/event_batch.h"
#include "trainperf/trace/run_sorter.h"
#include "trainperf/trace/trace_record.h"
#include "trainperf/trace/trace_tables.h"

namespace trainperf {

struct TraceReadOptions {
  int threads = 0;                 // that parse; 0: as the machine has
  size_t chunk_bytes = 256 << 10;  // of text: with its index it fits into a core's cache
  size_t memory_bytes = 64 << 20;  // of records, before they go to a temporary file
  // Told the share of the file that is read, now and then; false stops, with a Cancelled status.
  std::function<bool(double)> progress;
};

struct TraceDevice {
  uint32_t id;
  std::string name;
  std::string description;  // JSON
};

struct Trace {
  explicit Trace(size_t memory_bytes) : host(memory_bytes / 2), device(memory_bytes / 2) {}

  RunSorter<HostRecord, HostRecordOrder> host;
  RunSorter<DeviceOp, DeviceOpOrder> device;
  std::vector<StepMark> steps;        // in the file's order
  std::vector<ThreadCounts> threads;  // by thread id
  std::vector<uint16_t> thread_ids;   // by HostRecord::thread, which depends on which parser was the first to meet it
  TraceTables tables;
  std::vector<TraceDevice> devices;  // as the trace describes them, whether they are used or not
  int64_t rank = -1;                 // -1: the trace does not say
  int64_t world_size = -1;
  int64_t base_time_ns = 0;  // what its stamps count from; 0: 1970, or not known
  int64_t events = 0;
  int64_t bad_times = 0;
  int64_t refused = 0;
  int64_t unreadable = 0;  // events whose text is broken
  int64_t python_functions = 0;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
  // Runs count their time from a second before the trace's first event: sums of stamps of 60 years would not fit.
  int64_t zero_ns() const { return first_ns - kSecondBeforeNs; }
  static constexpr int64_t kSecondBeforeNs = 1'000'000'000;
  std::vector<std::string> notes;
};

// As ByteSource::Open(), and InvalidArgument for what is no trace, or holds no events.
absl::StatusOr<std::unique_ptr<Trace>> ReadTrace(const std::string& path, const TraceReadOptions& options);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TRACE_READER_H_
