// The frames of one thread's stack, read without the GIL while the thread runs: only such as were there together.
//
//   StackWalk walk;
//   const size_t count = walk.Read(memory, state, positions);   // innermost first
//
// The memory of the frames is copied twice, and between the two the thread state, which knows the innermost frame, and
// who holds the GIL: in one system call. A frame that is the same in both copies, and so are its callers and where they
// stand, was on the stack at that moment, as it is told. Where functions are called and return faster than memory is
// copied, the innermost frames differ, and the stack is told without them: of the user's loop over small functions the
// loop's own line.
//
// One thread at a time. Allocates nothing after construction.

#ifndef TRAINPERF_CPYTHON_STACK_WALK_H_
#define TRAINPERF_CPYTHON_STACK_WALK_H_

#include <cstddef>
#include <cstdint>

#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/frame_copies.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/process_memory.h"
#include "trainperf/cpython/thread_state.h"

namespace trainperf {

class StackWalk {
 public:
  static constexpr size_t kMaxFrames = 96;  // deeper stacks lose their outermost frames

  // Into `positions`, of kMaxFrames; 0 when the stack cannot be read. `gil`: nullptr, or what tells at the same moment
  // who held the GIL, in `holder`. Where there is none, that is the thread itself while it may run Python.
  size_t Read(const ProcessMemory& memory, const ThreadState& state, CodePosition* positions,
              const GilView* gil = nullptr, const void** holder = nullptr);

  // What was read was of another thread.
  void Forget();

 private:
  static constexpr size_t kMaxSteps = 2 * kMaxFrames;  // frames of C code count too, so that a ring of them ends
  static constexpr int kTries = 5;
  // Longest time of a read, for each piece: it takes a tenth of that. In what takes longer the kernel ran something
  // else, and a loop may have come round to where it was.
  static constexpr int64_t kLongestPieceNs = 4'000;
  static constexpr int64_t kLongestPieceByFileNs = 20'000;  // in a system call of its own

  // From 3.11 on frames lie behind one another in chunks. Of the latest one, what is from `top` on is not in use.
  struct DataStack {
    uint64_t begin;
    uint64_t top;
    uint64_t limit;
  };

  // On 3.15 the outermost frame of a thread lies in its state, and nothing else of its stack is near.
  static constexpr uint64_t kThreadStateSize = 4096;  // roughly

  const char* Copy(const ProcessMemory& memory, uint64_t frame);
  bool Find(const ProcessMemory& memory, uint64_t top);
  bool FindAgain(const ProcessMemory& memory);
  bool ReadTwice(const ProcessMemory& memory, const ThreadState& state, uint64_t top, const GilView* gil);
  size_t FramesFrom(uint64_t frame, CodePosition* positions) const;
  size_t FramesInUse(CodePosition* positions) const;

  FrameCopies copies_;
  uint64_t thread_state_ = 0;
  uint64_t found_[kMaxSteps];  // frames, innermost first
  size_t found_count_ = 0;
  uint64_t told_[kMaxFrames];  // the last time
  size_t told_count_ = 0;
  DataStack data_stack_{};  // between the two copies; all 0 on 3.10
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_STACK_WALK_H_
