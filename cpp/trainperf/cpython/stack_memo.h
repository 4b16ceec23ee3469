// The stack of one thread, as the stack table numbers it. Most of its callers are those of the last time, and are not
// looked up again.
//
//   StackMemo memo;
//   StackId id = memo.Read(memory, state, &codes);   // 0: it could not be read
//
// One thread at a time. Allocates nothing after construction.

#ifndef TRAINPERF_CPYTHON_STACK_MEMO_H_
#define TRAINPERF_CPYTHON_STACK_MEMO_H_

#include <cstddef>
#include <cstdint>

#include "trainperf/base/stack_table.h"
#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/process_memory.h"
#include "trainperf/cpython/stack_walk.h"
#include "trainperf/cpython/thread_state.h"

namespace trainperf {

class StackMemo {
 public:
  // `gil` and `holder`: as StackWalk::Read has them.
  StackId Read(const ProcessMemory& memory, const ThreadState& state, CodeCache* codes, const GilView* gil = nullptr,
               const void** holder = nullptr);
  // What was read was of another thread.
  void Forget();

 private:
  static constexpr size_t kMaxFrames = StackWalk::kMaxFrames;
  static constexpr uint32_t kCheckAllEvery = 8;  // reads

  struct Frames {
    size_t count = 0;
    CodePosition positions[kMaxFrames];
    SiteId sites[kMaxFrames];
    StackId stacks[kMaxFrames];  // of each frame and its callers
  };

  StackWalk walk_;
  Frames now_;
  Frames before_;
  uint32_t reads_ = 0;
  uint64_t generation_ = 0;  // of the stack table that before_ is from
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_STACK_MEMO_H_
