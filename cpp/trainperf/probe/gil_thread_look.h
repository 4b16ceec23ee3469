// What a thread is doing, as its /proc/self/task/TID/syscall tells: on CPU, or asleep, where and why.
//
//   ThreadLook look;
//   look.Follow(tid);
//   const ThreadLook::State now = look.Read();
//
// One thread at a time. Allocates nothing after construction.

#ifndef TRAINPERF_PROBE_GIL_THREAD_LOOK_H_
#define TRAINPERF_PROBE_GIL_THREAD_LOOK_H_

#include <cstddef>
#include <cstdint>

#include "trainperf/base/own_heap.h"
#include "trainperf/cpython/process_memory.h"

namespace trainperf {

class ThreadLook {
 public:
  enum class Kind { kRunning, kAsleep, kUnreadable };
  struct State {
    Kind kind;
    int64_t syscall;  // asleep: its number; -1: asleep outside of one (a page fault)
    uint64_t first_argument;
    uint64_t stack_pointer;
    uint64_t pc;
    uint64_t timeout;  // of a futex: where its timespec lies; 0: there is none
    bool relative;     // the timespec is no time of day or of a clock
    bool realtime;     // it is of CLOCK_REALTIME
  };

  ThreadLook();
  ~ThreadLook();
  ThreadLook(const ThreadLook&) = delete;
  ThreadLook& operator=(const ThreadLook&) = delete;

  // Whether this kernel and container show it at all, tried on the calling thread.
  static bool Works();

  void Follow(int32_t native_tid);
  State Read() const;

  // Whether a thread that is asleep in a futex there waits inside an OpenMP runtime: for the other threads of a
  // parallel region. libgomp makes the system call itself, the others through libc, hence the look at who called.
  bool InOpenMp(const ProcessMemory& memory, const State& state, int64_t now_ns);
  static bool IsFutex(int64_t syscall);
  // Whether a futex's wait ends by itself within `within_ns`.
  static bool EndsSoon(const ProcessMemory& memory, const State& state, int64_t within_ns);

 private:
  enum class Owner : uint8_t { kOther, kLibc, kGomp, kOpenMp };
  struct Range {
    uint64_t begin;
    uint64_t end;
    Owner owner;
  };
  static constexpr size_t kMaxRanges = 4096;

  const Range* Find(uint64_t address) const;
  void ReadMappings(int64_t now_ns);
  void AddMapping(const char* line);

  int fd_ = -1;
  int32_t tid_ = 0;
  Pages<Range> ranges_;  // of executable mappings, by address
  size_t range_count_ = 0;
  int64_t mappings_read_ns_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_GIL_THREAD_LOOK_H_
