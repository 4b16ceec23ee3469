#include "trainperf/cpython/thread_state.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <set>

#include "trainperf/cpython/field.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

constexpr size_t kLargestRead = 512;
constexpr size_t kPthreadSearch = 2304;  // sizeof(struct pthread) in glibc 2.31 to 2.39

std::atomic<int> g_tid_offset{-1};  // within what a pthread_t points to; -1: not known

struct Search {
  const ProcessMemory* memory;
  std::set<int> offsets;
};

// Where in the calling thread's own descriptor its native id stands.
void* FindOwnTid(void* data) {
  Search* search = static_cast<Search*>(data);
  std::array<char, kPthreadSearch> descriptor{};
  const auto tid = static_cast<int32_t>(syscall(SYS_gettid));
  const auto address = static_cast<uint64_t>(pthread_self());
  for (size_t at = 0; at < descriptor.size(); at += 64) {  // the end may be unmapped
    if (!search->memory->Read(address + at, descriptor.data() + at, 64)) break;
  }
  for (int at = 0; at + 4 <= static_cast<int>(descriptor.size()); at += 4) {
    if (At<int32_t>(descriptor.data(), at) == tid) search->offsets.insert(at);
  }
  return nullptr;
}

}  // namespace

bool LearnNativeTids() {
  if (tp_python_offsets.tstate_native_tid >= 0 || g_tid_offset.load(std::memory_order_relaxed) >= 0) return true;
  const ProcessMemory memory = ProcessMemory::Open();
  Search here{&memory, {}};
  Search there{&memory, {}};
  FindOwnTid(&here);
  pthread_t helper;
  if (pthread_create(&helper, nullptr, &FindOwnTid, &there) != 0) return false;
  pthread_join(helper, nullptr);
  std::set<int> both;
  for (const int offset : here.offsets) {
    if (there.offsets.count(offset) != 0) both.insert(offset);
  }
  if (both.size() != 1) return false;
  g_tid_offset.store(*both.begin(), std::memory_order_relaxed);
  return true;
}

bool IsAttached(const char* copy) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  return offsets.tstate_state >= 0 && At<int32_t>(copy, offsets.tstate_state) == offsets.tstate_attached;
}

bool ReadThreadState(const ProcessMemory& memory, uint64_t address, ThreadState* state) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  char copy[kLargestRead];
  const auto size = static_cast<size_t>(offsets.tstate_read_size);
  if (address == 0 || size > sizeof(copy) || !memory.Read(address, copy, size)) return false;
  state->address = address;
  state->id = At<uint64_t>(copy, offsets.tstate_id);
  state->frame = At<uint64_t>(copy, offsets.tstate_frame);
  state->prev = At<uint64_t>(copy, offsets.tstate_prev);
  state->next = At<uint64_t>(copy, offsets.tstate_next);
  state->attached = IsAttached(copy);
  const int32_t section = offsets.tstate_critical_section;
  state->critical_section = section >= 0 ? At<uint64_t>(copy, section) : 0;
  state->native_tid = 0;
  if (offsets.tstate_native_tid >= 0) {
    state->native_tid = static_cast<int32_t>(At<uint64_t>(copy, offsets.tstate_native_tid));
  } else if (const int tid_offset = g_tid_offset.load(std::memory_order_relaxed); tid_offset >= 0) {
    const auto descriptor = At<uint64_t>(copy, offsets.tstate_pthread);
    int32_t tid = 0;
    if (memory.Read(descriptor + static_cast<uint64_t>(tid_offset), &tid, sizeof(tid))) state->native_tid = tid;
  }
  return true;
}

}  // namespace trainperf
