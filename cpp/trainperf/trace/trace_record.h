// What the reader keeps of a trace's host events: 32 bytes each. Device events become a DeviceOp at once.

#ifndef TRAINPERF_TRACE_TRACE_RECORD_H_
#define TRAINPERF_TRACE_TRACE_RECORD_H_

#include <cstdint>
#include <type_traits>

#include "trainperf/event/device_op.h"

namespace trainperf {

// In the order in which equal intervals nest, the outermost first: stamps of whole microseconds make many equal.
enum class RecordKind : uint8_t {
  kAnnotation,  // a span that someone named; `what` is a TraceBracket
  kPython,      // a Python function
  kWaiting,     // a built-in function that waits: for a lock, a socket, a clock
  kOp,          // a torch operator
  kBackwardOp,  // autograd evaluates a node
  kOther,       // a call of the runtime that says nothing of why it takes time
  kCall,        // `what` is a HostCall
};

// HostRecord::what of annotations.
enum class TraceBracket : uint8_t { kNone, kFetch, kOptimizer, kBackward, kCheckpoint };

struct HostRecord {
  int64_t start_ns;
  int64_t end_ns;
  uint64_t correlation;
  uint32_t name;
  uint16_t thread;
  RecordKind kind;
  uint8_t what;
};
static_assert(sizeof(HostRecord) == 32 && std::is_trivially_copyable_v<HostRecord>);

// By start; of equal starts the outer before the inner.
struct HostRecordOrder {
  bool operator()(const HostRecord& a, const HostRecord& b) const {
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
    return a.kind < b.kind;
  }
};

struct DeviceOpOrder {
  bool operator()(const DeviceOp& a, const DeviceOp& b) const {
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.start_ns < b.start_ns;
  }
};

struct StepMark {  // a ProfilerStep#N of the host
  int64_t start_ns;
  int64_t end_ns;
  int64_t number;
  uint16_t thread;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TRACE_RECORD_H_
