#include "trainperf/cpython/stack_walk.h"

#include <algorithm>
#include <utility>

#include "trainperf/base/clock.h"
#include "trainperf/cpython/field.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

constexpr int kMaxFramesOfC = 2;  // that follow one another

CodePosition ReadPosition(const char* copy, uint64_t frame) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  return {frame, At<uint64_t>(copy, offsets.frame_code) & offsets.frame_code_mask,
          offsets.frame_instr_is_index
              ? static_cast<uint64_t>(static_cast<int64_t>(At<int32_t>(copy, offsets.frame_instr)))
              : At<uint64_t>(copy, offsets.frame_instr),
          offsets.frame_tlbc_index >= 0 ? At<int32_t>(copy, offsets.frame_tlbc_index) : 0};
}

uint64_t CallerOf(const char* copy) { return At<uint64_t>(copy, tp_python_offsets.frame_previous); }

bool IsSameFrame(const char* a, const char* b) {
  const int32_t code = tp_python_offsets.frame_code;
  return At<uint64_t>(a, code) == At<uint64_t>(b, code) && CallerOf(a) == CallerOf(b);
}

// False where the caller is the frame itself. Then it is none: it had gone when the copies were made, both times, and
// its memory holds the caller's operands. These lead to an object, from there to its type, and so to `type`, which is
// of the type `type`.
bool GoToCaller(const char* copy, uint64_t* frame) {
  const uint64_t callee = std::exchange(*frame, CallerOf(copy));
  return *frame != callee;
}

bool IsOfC(const char* copy) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  return offsets.frame_owner >= 0 && At<char>(copy, offsets.frame_owner) >= offsets.frame_owner_is_c;
}

// On 3.10.
bool Runs(const char* copy) {
  return At<char>(copy, tp_python_offsets.frame_state) == tp_python_offsets.frame_state_runs;
}

// Of a frame without a caller. A generator that has yielded has none either, nor on 3.10 a frame that has returned.
// From 3.12 on all are called by one of C code.
bool MayBeOutermost(const char* copy) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  if (offsets.outermost_is_c) return IsOfC(copy);
  if (offsets.frame_state >= 0) return Runs(copy);
  return At<char>(copy, offsets.frame_owner) != offsets.frame_owner_is_generator;
}

}  // namespace

void StackWalk::Forget() {
  copies_.Clear();
  found_count_ = told_count_ = 0;
}

const char* StackWalk::Copy(const ProcessMemory& memory, uint64_t frame) {
  return copies_.Find(memory, frame, /*alone=*/frame - thread_state_ < kThreadStateSize);
}

// Where the frames of the stack lie. `top`: what the thread state knew of the innermost one. False when by now it leads
// to memory that cannot be read, or to no outermost frame.
bool StackWalk::Find(const ProcessMemory& memory, uint64_t top) {
  copies_.Clear();
  found_count_ = 0;
  uint64_t frame = top;
  const int32_t cframe = tp_python_offsets.cframe_frame;
  if (cframe >= 0 && !memory.Read(top + static_cast<uint64_t>(cframe), &frame, sizeof(frame))) return false;
  const char* copy = nullptr;
  for (size_t count = 0; frame != 0 && count < kMaxFrames && found_count_ < kMaxSteps;) {
    copy = Copy(memory, frame);
    if (copy == nullptr) return false;
    found_[found_count_++] = frame;
    if (!IsOfC(copy)) ++count;
    if (!GoToCaller(copy, &frame)) return false;
  }
  return frame != 0 || (copy != nullptr && MayBeOutermost(copy));
}

// Instead, where those that were told the last time lie, and the frames of C code between them: most are still there.
bool StackWalk::FindAgain(const ProcessMemory& memory) {
  copies_.Clear();
  found_count_ = 0;
  for (size_t i = 0; i < told_count_; ++i) {
    const char* copy = Copy(memory, told_[i]);
    if (copy == nullptr) continue;
    found_[found_count_++] = told_[i];
    // From 3.15 on two follow one another: the outermost one's caller lies in the thread state.
    for (int steps = 0; tp_python_offsets.outermost_is_c && steps < kMaxFramesOfC; ++steps) {
      const uint64_t caller = CallerOf(copy);
      copy = caller != 0 ? Copy(memory, caller) : nullptr;
      if (copy == nullptr || !IsOfC(copy)) break;
    }
  }
  return found_count_ > 0;
}

// The frames, of the stack whose innermost one was `frame` between the two copies, that were there all the while: the
// same in both, and their callers, down to the instruction. Of the innermost that is told, the instruction may be
// another: it has gone on. 0 when not all frames are copied, or they do not lead to an outermost one.
size_t StackWalk::FramesFrom(uint64_t frame, CodePosition* positions) const {
  size_t count = 0;
  const char* copy = nullptr;
  for (size_t steps = 0; frame != 0 && count < kMaxFrames && steps < kMaxSteps; ++steps) {
    const char* before = copies_.First(frame);
    if (before == nullptr) return 0;
    copy = copies_.Second(before);
    const CodePosition position = ReadPosition(copy, frame);
    const bool in_use = frame < data_stack_.top || frame >= data_stack_.limit;
    if (!in_use || !IsSameFrame(before, copy)) {
      count = 0;
    } else if (!IsOfC(copy)) {
      if (position.instruction != ReadPosition(before, frame).instruction) count = 0;
      positions[count++] = position;
    }
    if (!GoToCaller(copy, &frame)) return 0;
  }
  return frame != 0 || (copy != nullptr && MayBeOutermost(copy)) ? count : 0;
}

// The same where the innermost frame is not known: from the innermost on that was in use. On 3.10 that is one that
// runs.
size_t StackWalk::FramesInUse(CodePosition* positions) const {
  const int32_t state = tp_python_offsets.frame_state;
  for (size_t i = 0; i < found_count_; ++i) {
    const uint64_t frame = found_[i];
    const char* before = copies_.First(frame);
    const char* copy = copies_.Second(before);
    const bool in_use = state >= 0 ? Runs(before) && Runs(copy) : frame >= data_stack_.begin && frame < data_stack_.top;
    if (!in_use || !IsSameFrame(before, copy)) continue;
    if (const size_t count = FramesFrom(frame, positions); count > 0) return count;
  }
  return 0;
}

bool StackWalk::ReadTwice(const ProcessMemory& memory, const ThreadState& state, uint64_t top, const GilView* gil) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  FrameCopies::Others others{};
  others[0] = {reinterpret_cast<void*>(state.address), static_cast<size_t>(offsets.tstate_read_size)};
  if (offsets.cframe_frame >= 0) {
    others[1] = {reinterpret_cast<void*>(top + static_cast<uint64_t>(offsets.cframe_frame)), sizeof(uint64_t)};
  }
  if (gil != nullptr) others[2] = gil->where();
  const int64_t begin_ns = NowNs();
  if (!copies_.ReadTwice(memory, others)) return false;
  const int64_t longest_ns = memory.way() == ProcessMemory::Way::kVmRead ? kLongestPieceNs : kLongestPieceByFileNs;
  if (NowNs() - begin_ns > longest_ns * static_cast<int64_t>(copies_.pieces())) return false;
  if (offsets.tstate_data_stack >= 0) data_stack_ = At<DataStack>(copies_.others(), offsets.tstate_data_stack);
  return true;
}

size_t StackWalk::Read(const ProcessMemory& memory, const ThreadState& state, CodePosition* positions,
                       const GilView* gil, const void** holder) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  const bool has_cframes = offsets.cframe_frame >= 0;
  thread_state_ = state.address;
  uint64_t top = state.frame;
  size_t count = 0;
  bool found = !copies_.empty();  // the last time: of a thread that stands still, or goes on in one function, all
  for (int i = 0; i < kTries && top != 0 && count == 0; ++i) {
    const bool of_last_time = i == 0 && found;
    found = (found || Find(memory, top) || FindAgain(memory)) && ReadTwice(memory, state, top, gil);
    if (!found) {
      const uint64_t field = state.address + static_cast<uint64_t>(offsets.tstate_frame);
      if (!memory.Read(field, &top, sizeof(top))) break;
      continue;
    }
    if (At<uint64_t>(copies_.others(), offsets.tstate_id) != state.id) break;
    const uint64_t before = std::exchange(top, At<uint64_t>(copies_.others(), offsets.tstate_frame));
    if (!has_cframes || top == before) {
      count = FramesFrom(has_cframes ? At<uint64_t>(copies_.others(), offsets.tstate_read_size) : top, positions);
    }
    if (count == 0 && !of_last_time) count = FramesInUse(positions);
    found = false;
  }
  if (count > 0) told_count_ = count;
  if (count > 0 && gil == nullptr && holder != nullptr && offsets.tstate_state >= 0) {
    *holder = IsAttached(copies_.others()) ? reinterpret_cast<const void*>(state.address) : nullptr;
  }
  if (count > 0 && gil != nullptr) {
    *holder = GilView::HolderIn(copies_.others() + offsets.tstate_read_size + (has_cframes ? sizeof(uint64_t) : 0));
  }
  for (size_t i = 0; i < count; ++i) told_[i] = positions[i].frame;
  return count;
}

}  // namespace trainperf
