#include <Python.h>
// Python.h must come first.
#include <frameobject.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

bool IsSame(const CodePosition& a, const CodePosition& b) {
  return a.frame == b.frame && a.code == b.code && a.instruction == b.instruction;
}

}  // namespace

FrameReader::FrameReader(SelfMemory memory) : memory_(std::move(memory)) {}

StackId FrameReader::Read(const ThreadState& state, const GilView* gil, const void** holder) {
  if (state.frame == 0) return 0;
  Known& known = KnownOf(state.id);
  const size_t count = known.walk.Read(memory_, state, positions_, gil, holder);
  if (count == 0) return 0;

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
  known.walk.Forget();
  return known;
}

absl::StatusOr<std::unique_ptr<FrameReader>> FrameReader::Create(SelfMemory::Way best) {
  TpAskInterpreter();
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

// What we read of our own stack must be what the interpreter says of it, or the layout is not the one we know: that of
// a distribution's patch, say.
absl::Status FrameReader::CheckOnOwnStack() {
  PyThreadState* tstate = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(tstate);
  if (frame == nullptr) return absl::OkStatus();  // called from C with no Python below: nothing to compare with

  ThreadState state;
  size_t count = 0;
  bool resolved = false;
  const bool known = ReadThreadState(memory_, reinterpret_cast<uint64_t>(tstate), &state) &&
                     state.id == PyThreadState_GetID(tstate) && (tp_python_offsets.tstate_state < 0 || state.attached);
  if (known) count = KnownOf(state.id).walk.Read(memory_, state, positions_);
  for (int i = 0; i < 100 && count > 0 && !resolved; ++i) {  // the sampler may be writing to the table just now
    resolved = codes_.Resolve(memory_, positions_, count, sites_);
    if (!resolved) sched_yield();
  }
  size_t same_code = 0;
  size_t same_line = 0;
  size_t wanted = 0;
  for (; frame != nullptr && wanted < kMaxFrames; ++wanted) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (resolved && wanted < count && positions_[wanted].code == reinterpret_cast<uint64_t>(code)) {
      ++same_code;
      if (StackTable::Get().site(sites_[wanted]).line == PyFrame_GetLineNumber(frame)) ++same_line;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(code);  // the frame holds it
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
  if (!known) return absl::NotFoundError("thread states of this interpreter are not laid out as known");
  if (count != wanted || same_code != wanted) {
    return absl::NotFoundError("frames of this interpreter are not laid out as known");
  }
  if (same_line != wanted) return absl::NotFoundError("line tables of this interpreter are not laid out as known");
  return absl::OkStatus();
}

}  // namespace trainperf
