#include <Python.h>
// Python.h must come first.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

template <typename T>
T At(const char* base, int32_t offset) {
  T value;
  std::memcpy(&value, base + offset, sizeof(value));
  return value;
}

bool IsSame(const CodePosition& a, const CodePosition& b) {
  return a.frame == b.frame && a.code == b.code && a.instruction == b.instruction;
}

}  // namespace

FrameReader::FrameReader(SelfMemory memory) : memory_(std::move(memory)) {}

// A copy of the frame at `address`; nullptr when it cannot be read.
const char* FrameReader::FrameAt(uint64_t address) {
  const auto size = static_cast<uint64_t>(tp_python_offsets.frame_read_size);
  const uint64_t end = address + size;
  if (address % alignof(void*) != 0 || size > kLargestFrame) return nullptr;
  if (address < window_begin_ || end > window_end_) {
    window_page_ = tp_python_offsets.frames_are_contiguous ? address & ~(kPage - 1) : address;
    window_begin_ = window_end_ = 0;
    // Close to the begin of a page the callers are on the one before, which may not be mapped.
    const bool near_begin = tp_python_offsets.frames_are_contiguous && address - window_page_ < kReach;
    if (near_begin && memory_.Read(window_page_ - kReach, window_, kReach + (end - window_page_))) {
      window_begin_ = window_page_ - kReach;
    } else if (memory_.Read(window_page_, window_ + kReach, end - window_page_)) {
      window_begin_ = window_page_;
    } else {
      return nullptr;
    }
    window_end_ = end;
  }
  return window_ + kReach + static_cast<int64_t>(address - window_page_);
}

size_t FrameReader::WalkFrames(uint64_t frame, CodePosition* positions, bool* torn) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  window_begin_ = window_end_ = 0;
  size_t count = 0;
  *torn = false;
  // Frames of C code count too, so that a ring of them ends.
  for (size_t steps = 0; frame != 0 && count < kMaxFrames && steps < 2 * kMaxFrames; ++steps) {
    const char* copy = FrameAt(frame);
    if (copy == nullptr) {
      *torn = true;
      break;
    }
    const uint64_t address = frame;
    frame = At<uint64_t>(copy, offsets.frame_previous);
    if (offsets.frame_owner >= 0 && At<char>(copy, offsets.frame_owner) >= offsets.frame_owner_is_c) continue;
    CodePosition& position = positions[count++];
    position.frame = address;
    position.code = At<uint64_t>(copy, offsets.frame_code);
    position.instruction = offsets.frame_instr_is_index
                               ? static_cast<uint64_t>(static_cast<int64_t>(At<int32_t>(copy, offsets.frame_instr)))
                               : At<uint64_t>(copy, offsets.frame_instr);
  }
  return count;
}

StackId FrameReader::Read(const ThreadState& state) {
  uint64_t frame = state.frame;
  const int32_t cframe = tp_python_offsets.cframe_frame;
  if (frame == 0) return 0;
  if (cframe >= 0 && !memory_.Read(frame + static_cast<uint64_t>(cframe), &frame, sizeof(frame))) return 0;
  bool torn = false;
  const size_t count = WalkFrames(frame, positions_, &torn);
  if (torn || count == 0) return 0;

  Known& known = KnownOf(state.id);
  const size_t most = std::min(count, known.count);
  size_t same = 0;  // outermost frames that are where they were, in the same code and instruction
  while (same < most && IsSame(positions_[count - 1 - same], known.positions[known.count - 1 - same])) ++same;
  // Code may be freed and other code take its place, at the same instruction of the same frame: nearly never, hence the
  // look at all of it only now and then.
  if (++known.reads % kCheckAllEvery == 0) same = 0;
  const size_t inner = count - same;
  if (inner == 0 && count == known.count) return known.stacks[0];
  if (inner > 0 && !codes_.Resolve(memory_, positions_, inner, sites_)) return 0;
  std::copy_n(known.sites + known.count - same, same, sites_ + inner);
  std::copy_n(known.stacks + known.count - same, same, stacks_ + inner);
  const StackId caller = same > 0 ? stacks_[inner] : 0;
  std::fill_n(stacks_, inner, StackId{0});
  const StackId stack = inner > 0 ? StackTable::Get().Intern(sites_, inner, caller, stacks_) : stacks_[0];
  known.count = stacks_[0] != 0 ? count : 0;  // nothing is learned from a stack that was cut, or refused
  std::copy_n(positions_, count, known.positions);
  std::copy_n(sites_, count, known.sites);
  std::copy_n(stacks_, count, known.stacks);
  return stack;
}

FrameReader::Known& FrameReader::KnownOf(uint64_t thread_state) {
  if (const uint64_t generation = StackTable::Get().generation(); generation != generation_) {
    for (Known& known : known_) known.count = 0;
    generation_ = generation;
  }
  for (Known& known : known_) {
    if (known.thread_state == thread_state) return known;
  }
  Known& known = known_[next_known_++ % kKnown];
  known.thread_state = thread_state;
  known.count = 0;
  return known;
}

absl::StatusOr<std::unique_ptr<FrameReader>> FrameReader::Create(SelfMemory::Way best) {
  if (tp_python_offsets.unsupported != nullptr) return absl::UnimplementedError(tp_python_offsets.unsupported);
  SelfMemory memory = SelfMemory::Open(best);
  if (memory.way() == SelfMemory::Way::kNone) {
    return absl::PermissionDeniedError("neither process_vm_readv nor /proc/self/mem may be used here");
  }
  StackTable::Get().Init();
  std::unique_ptr<FrameReader> reader(new FrameReader(std::move(memory)));
  absl::Status status = reader->CheckOnOwnStack();
  if (!status.ok()) return status;
  return reader;
}

// What we read of our own innermost frame must be what the interpreter says of it, or the layout is not the one we
// know.
absl::Status FrameReader::CheckOnOwnStack() {
  PyThreadState* tstate = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(tstate);
  if (frame == nullptr) return absl::OkStatus();  // called from C with no Python below: nothing to compare with
  PyCodeObject* code = PyFrame_GetCode(frame);
  const auto wanted_code = reinterpret_cast<uint64_t>(code);
  const int wanted_line = PyFrame_GetLineNumber(frame);
  Py_DECREF(code);  // the frame that runs holds it
  Py_DECREF(frame);

  ThreadState state;
  bool torn = false;
  if (!ReadThreadState(memory_, reinterpret_cast<uint64_t>(tstate), &state) ||
      state.id != PyThreadState_GetID(tstate)) {
    return absl::NotFoundError("thread states of this interpreter are not laid out as known");
  }
  uint64_t innermost = state.frame;
  const int32_t cframe = tp_python_offsets.cframe_frame;
  if (cframe >= 0 && !memory_.Read(innermost + static_cast<uint64_t>(cframe), &innermost, sizeof(innermost))) {
    return absl::NotFoundError("frames of this interpreter are not laid out as known");
  }
  const size_t count = WalkFrames(innermost, positions_, &torn);
  bool resolved = false;
  for (int i = 0; i < 100 && !torn && count > 0 && !resolved;
       ++i) {  // the sampler may be writing to the table just now
    resolved = codes_.Resolve(memory_, positions_, count, sites_);
    if (!resolved) sched_yield();
  }
  if (!resolved || positions_[0].code != wanted_code) {
    return absl::NotFoundError("frames of this interpreter are not laid out as known");
  }
  if (StackTable::Get().site(sites_[0]).line != wanted_line) {
    return absl::NotFoundError("line tables of this interpreter are not laid out as known");
  }
  return absl::OkStatus();
}

}  // namespace trainperf
