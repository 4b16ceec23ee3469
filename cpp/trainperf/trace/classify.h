// What the names in a trace mean: categories, calls of CUDA's and HIP's runtimes, annotations, copies.

#ifndef TRAINPERF_TRACE_CLASSIFY_H_
#define TRAINPERF_TRACE_CLASSIFY_H_

#include <cstdint>
#include <string_view>

#include "trainperf/event/event.h"
#include "trainperf/trace/trace_record.h"

namespace trainperf {

enum class Category : uint8_t { kIgnored, kOp, kAnnotation, kRuntime, kPython, kKernel, kMemcpy, kMemset };

// Of `cat`, old spellings ("Operator", "Runtime", "Kernel") and new.
Category CategoryOf(std::string_view category);

struct Meaning {
  RecordKind kind;
  uint8_t what;
};
Meaning MeaningOfCall(std::string_view name);    // a call of a runtime or driver
Meaning MeaningOfSpan(std::string_view name);    // an operator or annotation
Meaning MeaningOfPython(std::string_view name);  // "file.py(12): function", "<built-in function sleep>"

// The number of "ProfilerStep#12"; -1 when it is none.
int64_t StepNumber(std::string_view name);

// From names such as "Memcpy HtoD (Pinned -> Device)".
void DescribeCopy(std::string_view name, DeviceOp* op);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_CLASSIFY_H_
