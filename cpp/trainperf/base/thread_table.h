// The threads that a watch has seen, one slot each, found without locks or allocation.
//
//   ThreadTable& threads = ThreadTable::Get();
//   ThreadId id = threads.FindOrAdd(/*native_tid=*/gettid(), /*tstate_id=*/7);
//   threads.info(id).gil_wait_ns.fetch_add(...);
//
// Thread-safe: may be called from the GIL hook, with CPython's GIL mutex held. A slot is never given to another thread
// during one watch. Reset() is for the start of a watch, when no probe runs.

#ifndef TRAINPERF_BASE_THREAD_TABLE_H_
#define TRAINPERF_BASE_THREAD_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trainperf/base/ids.h"

namespace trainperf {

struct Event;
template <typename T>
class SpscRing;

struct ThreadInfo {
  std::atomic<int32_t> native_tid{0};  // 0: not known (CPython 3.10 does not tell another thread's)
  // The newest of its thread states: a native thread that calls into Python gets another at each call.
  std::atomic<uint64_t> tstate_id{0};

  // Written by the GIL hook on the thread itself; read by anyone.
  std::atomic<int64_t> waiting_since_ns{0};  // 0: not waiting
  std::atomic<int64_t> gil_wait_ns{0};
  std::atomic<int64_t> gil_waits{0};
  std::atomic<int64_t> runtime_wait_ns{0};  // for what takes the GIL's place on a free-threaded build
  std::atomic<int64_t> gil_delay_ns{0};     // of both, what it waited for a CPU: a watched thread

  // Set by the marks when the thread first writes one, or by the collector: a watched thread. Its ring's producer is
  // the thread itself.
  std::atomic<SpscRing<Event>*> ring{nullptr};
  std::atomic<int> schedstat_fd{-1};
  std::atomic<int64_t> put_off_since_ns{0};  // it is in a log record, whose begin it has yet to mark; 0: it is not
  std::atomic<bool> in_mark{false};          // it may be writing one just now
};

class ThreadTable {
 public:
  static constexpr size_t kCapacity = 1024;

  // The process' only table; never destroyed, since threads hold pointers into it.
  static ThreadTable& Get();

  // By native_tid where it is known, else by tstate_id. 0 when the table is full (counted in refused()).
  ThreadId FindOrAdd(int32_t native_tid, uint64_t tstate_id);

  // 1 <= id <= size().
  ThreadInfo& info(ThreadId id) { return slots_[id - 1]; }
  const ThreadInfo& info(ThreadId id) const { return slots_[id - 1]; }
  size_t size() const;
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  // Rises with every Reset(); whoever caches a ThreadInfo* must compare it. Odd while the table is being reset: then
  // nobody is to be added, nor found.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  void Reset();

 private:
  ThreadTable() = default;

  ThreadInfo slots_[kCapacity];
  std::atomic<uint32_t> index_[2 * kCapacity] = {};  // open addressing; holds ThreadId
  std::atomic<uint32_t> used_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> generation_{2};
};

// Whether this process has no thread of that native id any more. It asks the kernel, since there may be no /proc, or
// one of another PID namespace, in which every thread would seem to have ended.
bool ThreadHasEnded(int32_t native_tid);

}  // namespace trainperf

#endif  // TRAINPERF_BASE_THREAD_TABLE_H_
