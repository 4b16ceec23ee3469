#include "trainperf/cpython/child_stack.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/cpython/thread_state.h"

namespace trainperf {
namespace {

constexpr int kMaxThreads = 256;

struct Mapping {
  uint64_t begin = 0;  // of the file's first mapping
  std::string file;    // device and inode
};

// The file that lies at `address`, by /proc/PID/maps; with `file` given, where that file begins instead.
Mapping FindMapping(const char* maps, uint64_t address, const std::string& file) {
  Mapping found;
  FILE* lines = std::fopen(maps, "re");
  if (lines == nullptr) return found;
  char line[4608];
  Mapping latest;
  while (std::fgets(line, sizeof(line), lines) != nullptr) {
    uint64_t begin, end;
    char device[32];
    unsigned long long inode;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %31s %llu", &begin, &end, device, &inode) != 4) continue;
    // Zeroed data behind a file's has no file of its own, and follows it.
    if (inode != 0) {
      std::string name = absl::StrCat(device, " ", inode);
      if (name != latest.file) latest = {begin, std::move(name)};
    }
    const bool wanted = file.empty() ? begin <= address && address < end : latest.file == file;
    if (!wanted || latest.file.empty()) continue;
    found = latest;
    break;
  }
  std::fclose(lines);
  return found;
}

// How much further on than here the interpreter's own data lies in that process; 0 too where that cannot be told.
uint64_t FindShift(int32_t pid) {
  const Mapping here = FindMapping("/proc/self/maps", reinterpret_cast<uint64_t>(TpRuntimeAddress()), "");
  if (here.file.empty()) return 0;
  char maps[32];
  std::snprintf(maps, sizeof(maps), "/proc/%d/maps", pid);
  const Mapping there = FindMapping(maps, 0, here.file);
  return there.file.empty() ? 0 : there.begin - here.begin;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildStack>> ChildStack::Open(int32_t pid, const GilView* gil, ProcessMemory::Way best) {
  ProcessMemory memory = ProcessMemory::OpenOther(pid, best);
  if (memory.way() == ProcessMemory::Way::kNone) {
    if (access(absl::StrCat("/proc/", pid).c_str(), F_OK) != 0) return absl::NotFoundError("the process has ended");
    return absl::PermissionDeniedError(
        "the kernel does not let a process read its children's memory here (kernel.yama.ptrace_scope above 1, or a "
        "seccomp filter)");
  }
  std::unique_ptr<ChildStack> stack(new ChildStack(pid, std::move(memory)));
  if (stack->FindMain(gil)) return stack;
  stack->memory_.set_shift(FindShift(pid));
  if (stack->memory_.shift() != 0 && stack->FindMain(gil)) return stack;
  return absl::NotFoundError("no main thread of this interpreter in the process");
}

// The oldest of the thread states: new ones are put before it, and of a forked process it is the one that forked.
bool ChildStack::FindMain(const GilView* gil) {
  uint64_t at = 0;
  if (const void* head = TpThreadsHeadAddress(); head != nullptr) {
    if (!memory_.Read(reinterpret_cast<uint64_t>(head) + memory_.shift(), &at, sizeof(at))) return false;
  } else if (gil != nullptr) {
    const GilView there = gil->In(memory_.shift());
    if (!memory_.Read(reinterpret_cast<uint64_t>(there.where().iov_base), &at, sizeof(at))) return false;
  }
  ThreadState state{};
  bool ends = false;
  for (int i = 0; i < kMaxThreads && !ends; ++i) {
    if (!ReadThreadState(memory_, at, &state)) return false;
    ends = state.next == 0;
    if (!ends) at = state.next;
  }
  // 3.10 may not know native ids.
  if (!ends || (state.native_tid != 0 && state.native_tid != pid_)) return false;
  main_ = at;
  main_id_ = state.id;
  if (gil != nullptr) gil_ = gil->In(memory_.shift());
  return true;
}

StackId ChildStack::Read(CodeCache* codes, std::optional<bool>* holds_gil) {
  holds_gil->reset();
  ThreadState state{};
  if (!ReadThreadState(memory_, main_, &state) || state.id != main_id_ || state.frame == 0) return 0;
  const void* holder = nullptr;
  const StackId stack = memo_.Read(memory_, state, codes, gil_.has_value() ? &*gil_ : nullptr, &holder);
  if (stack != 0 && (gil_.has_value() || tp_python_offsets.tstate_state >= 0)) {
    *holds_gil = holder == reinterpret_cast<const void*>(main_);
  }
  return stack;
}

}  // namespace trainperf
