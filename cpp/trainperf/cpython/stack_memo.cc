#include "trainperf/cpython/stack_memo.h"

#include <algorithm>

namespace trainperf {
namespace {

bool IsSame(const CodePosition& a, const CodePosition& b) {
  return a.frame == b.frame && a.code == b.code && a.instruction == b.instruction;
}

}  // namespace

void StackMemo::Forget() {
  before_.count = 0;
  walk_.Forget();
}

StackId StackMemo::Read(const ProcessMemory& memory, const ThreadState& state, CodeCache* codes, const GilView* gil,
                        const void** holder) {
  if (const uint64_t generation = StackTable::Get().generation(); generation != generation_) {
    before_.count = 0;
    generation_ = generation;
  }
  const size_t count = walk_.Read(memory, state, now_.positions, gil, holder);
  if (count == 0) return 0;

  const size_t most = std::min(count, before_.count);
  size_t same = 0;  // outermost frames that are where they were, in the same code and instruction
  while (same < most && IsSame(now_.positions[count - 1 - same], before_.positions[before_.count - 1 - same])) ++same;
  // Code may be freed and other code take its place, at the same instruction of the same frame: nearly never, hence the
  // look at all of it only now and then.
  if (++reads_ % kCheckAllEvery == 0) same = 0;
  const size_t inner = count - same;
  if (inner == 0 && count == before_.count) return before_.stacks[0];
  if (inner > 0 && !codes->Resolve(memory, now_.positions, inner, now_.sites)) return 0;
  std::copy_n(before_.sites + before_.count - same, same, now_.sites + inner);
  std::copy_n(before_.stacks + before_.count - same, same, now_.stacks + inner);
  const StackId caller = same > 0 ? now_.stacks[inner] : 0;
  std::fill_n(now_.stacks, inner, StackId{0});
  const StackId stack = inner > 0 ? StackTable::Get().Intern(now_.sites, inner, caller, now_.stacks) : now_.stacks[0];
  // Nothing is learned from a stack that was cut, or refused.
  before_.count = now_.stacks[0] != 0 ? count : 0;
  std::copy_n(now_.positions, count, before_.positions);
  std::copy_n(now_.sites, count, before_.sites);
  std::copy_n(now_.stacks, count, before_.stacks);
  return stack;
}

}  // namespace trainperf
