#include <Python.h>
// Python.h must come first.
#include <frameobject.h>
#include <sched.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
FrameReader::FrameReader(ProcessMemory memory) : memory_(std::move(memory)) {}

StackId FrameReader::Read(const ThreadState& state, const GilView* gil, const void** holder) {
  if (state.frame == 0) return 0;
  for (Known& known : known_) {
    if (known.thread_state == state.id) return known.memo.Read(memory_, state, &codes_, gil, holder);
  }
  Known& known = known_[next_known_++ % kKnown];
  known.thread_state = state.id;
  known.memo.Forget();
  return known.memo.Read(memory_, state, &codes_, gil, holder);
}

absl::StatusOr<std::unique_ptr<FrameReader>> FrameReader::Create(ProcessMemory::Way best) {
  TpAskInterpreter();
  if (tp_python_offsets.unsupported != nullptr) return absl::UnimplementedError(tp_python_offsets.unsupported);
  ProcessMemory memory = ProcessMemory::Open(best);
  if (memory.way() == ProcessMemory::Way::kNone) {
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

  StackWalk walk;
  CodePosition positions[kMaxFrames];
  SiteId sites[kMaxFrames];
  ThreadState state;
  size_t count = 0;
  bool resolved = false;
  const bool known = ReadThreadState(memory_, reinterpret_cast<uint64_t>(tstate), &state) &&
                     state.id == PyThreadState_GetID(tstate) && (tp_python_offsets.tstate_state < 0 || state.attached);
  if (known) count = walk.Read(memory_, state, positions);
  for (int i = 0; i < 100 && count > 0 && !resolved; ++i) {  // the sampler may be writing to the table just now
    resolved = codes_.Resolve(memory_, positions, count, sites);
    if (!resolved) sched_yield();
  }
  size_t same_code = 0;
  size_t same_line = 0;
  size_t wanted = 0;
  for (; frame != nullptr && wanted < kMaxFrames; ++wanted) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (resolved && wanted < count && positions[wanted].code == reinterpret_cast<uint64_t>(code)) {
      ++same_code;
      if (StackTable::Get().site(sites[wanted]).line == PyFrame_GetLineNumber(frame)) ++same_line;
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
