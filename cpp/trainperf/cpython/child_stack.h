// The Python stack of another process' main thread, read while it runs: of a child of ours that runs this interpreter,
// forked from us, or started anew (spawn, forkserver).
//
//   auto stack = ChildStack::Open(pid, gil);      // FrameReader::Create() must have found that the layout is known
//   StackId id = (*stack)->Read(&codes, &holds_gil);
//
// One thread at a time. The child is not stopped, and may end at any time: reads then give 0. Read() allocates nothing.

#ifndef TRAINPERF_CPYTHON_CHILD_STACK_H_
#define TRAINPERF_CPYTHON_CHILD_STACK_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/process_memory.h"
#include "trainperf/cpython/stack_memo.h"

namespace trainperf {

class ChildStack {
 public:
  // `gil`: ours; nullptr: there is none to be seen. PermissionDenied: we may not read it. NotFound: it has ended, or no
  // main thread of this interpreter is there, or not yet.
  static absl::StatusOr<std::unique_ptr<ChildStack>> Open(int32_t pid, const GilView* gil,
                                                          ProcessMemory::Way best = ProcessMemory::Way::kVmRead);

  // 0: it cannot be read now. `holds_gil`: whether it held its process' GIL then, or without one might run Python; none
  // where that is not known.
  StackId Read(CodeCache* codes, std::optional<bool>* holds_gil);
  uint64_t shift() const { return memory_.shift(); }

 private:
  ChildStack(int32_t pid, ProcessMemory memory) : pid_(pid), memory_(std::move(memory)) {}

  bool FindMain(const GilView* gil);

  const int32_t pid_;
  ProcessMemory memory_;
  std::optional<GilView> gil_;  // as it lies in the child
  uint64_t main_ = 0;           // the main thread's state
  uint64_t main_id_ = 0;
  StackMemo memo_;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_CHILD_STACK_H_
