// Another thread's Python stack, read without the GIL.
//
//   auto reader = FrameReader::Create();            // Requires GIL: it tries itself on the caller's own stack
//   ThreadState state;
//   if (ReadThreadState((*reader)->memory(), tstate, &state)) StackId id = (*reader)->Read(state);
//
// One thread at a time. The thread that is looked at may run, and free what we read: only frames that were there
// together are told (StackWalk), every frame's code object is checked to be one, and a stack with a piece that is not
// is rejected whole (0). Allocates nothing after Create.

#ifndef TRAINPERF_CPYTHON_FRAME_READER_H_
#define TRAINPERF_CPYTHON_FRAME_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/process_memory.h"
#include "trainperf/cpython/stack_memo.h"
#include "trainperf/cpython/stack_walk.h"
#include "trainperf/cpython/thread_state.h"

namespace trainperf {

class FrameReader {
 public:
  static constexpr size_t kMaxFrames = StackWalk::kMaxFrames;

  static absl::StatusOr<std::unique_ptr<FrameReader>> Create(ProcessMemory::Way best = ProcessMemory::Way::kVmRead);

  const ProcessMemory& memory() const { return memory_; }
  // `gil`: nullptr, or what tells who held the GIL as the stack was read, in `holder`, which stays when it cannot be.
  // Where there is none, that is the thread itself while it may run Python.
  StackId Read(const ThreadState& state, const GilView* gil = nullptr, const void** holder = nullptr);

 private:
  explicit FrameReader(ProcessMemory memory);

  absl::Status CheckOnOwnStack();

  const ProcessMemory memory_;
  CodeCache codes_;

  struct Known {
    uint64_t thread_state = 0;  // id
    StackMemo memo;
  };
  static constexpr size_t kKnown = 4;
  Known known_[kKnown];
  size_t next_known_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_FRAME_READER_H_
