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
#include "trainperf/cpython/self_memory.h"
#include "trainperf/cpython/stack_walk.h"
#include "trainperf/cpython/thread_state.h"

namespace trainperf {

class FrameReader {
 public:
  static constexpr size_t kMaxFrames = StackWalk::kMaxFrames;

  static absl::StatusOr<std::unique_ptr<FrameReader>> Create(SelfMemory::Way best = SelfMemory::Way::kVmRead);

  const SelfMemory& memory() const { return memory_; }
  // `gil`: nullptr, or what tells who held the GIL as the stack was read, in `holder`, which stays when it cannot be.
  // Where there is none, that is the thread itself while it may run Python.
  StackId Read(const ThreadState& state, const GilView* gil = nullptr, const void** holder = nullptr);

 private:
  explicit FrameReader(SelfMemory memory);

  absl::Status CheckOnOwnStack();

  const SelfMemory memory_;
  CodeCache codes_;
  CodePosition positions_[kMaxFrames];
  SiteId sites_[kMaxFrames];
  StackId stacks_[kMaxFrames];  // of each frame and its callers

  // What was read of a thread the last time: most of its callers are still there.
  struct Known {
    uint64_t thread_state = 0;  // id
    uint32_t reads = 0;
    StackWalk walk;
    size_t count = 0;
    CodePosition positions[kMaxFrames];
    SiteId sites[kMaxFrames];
    StackId stacks[kMaxFrames];
  };
  static constexpr size_t kKnown = 4;
  static constexpr uint32_t kCheckAllEvery = 8;  // reads
  Known& KnownOf(uint64_t thread_state);

  Known known_[kKnown];
  size_t next_known_ = 0;
  uint64_t generation_ = 0;  // of the stack table that known_ is from
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_FRAME_READER_H_
