// Spans around a call, as a stack: Python's functions where the trace has them, operators and annotations by their
// name. Not thread-safe.

#ifndef TRAINPERF_TRACE_TRACE_STACKS_H_
#define TRAINPERF_TRACE_TRACE_STACKS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/base/name_table.h"
#include "trainperf/base/stack_table.h"

namespace trainperf {

// "train.py(12): step" is a function in a file; any other name stands for itself.
Site SiteOfName(std::string_view name);

class TraceStacks {
 public:
  static constexpr size_t kMaxFrames = 64;

  // `table` may be null: then there are no stacks.
  TraceStacks(const NameTable* names, StackTable* table) : names_(names), table_(table) {}

  StackId Intern(const std::vector<uint32_t>& innermost_first);
  bool on() const { return table_ != nullptr; }

 private:
  const NameTable* const names_;
  StackTable* const table_;
  absl::flat_hash_map<uint32_t, SiteId> sites_;
  std::vector<SiteId> scratch_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TRACE_STACKS_H_
