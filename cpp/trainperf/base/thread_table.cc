#include "trainperf/base/thread_table.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace trainperf {
namespace {

constexpr uint32_t kReserved = ~uint32_t{0};  // an index entry whose slot is being filled

size_t HashOf(int32_t native_tid, uint64_t tstate_id) {
  const uint64_t key = native_tid != 0 ? static_cast<uint64_t>(static_cast<uint32_t>(native_tid)) << 32 : tstate_id;
  const uint64_t h = key * 0x9E3779B97F4A7C15ull;
  return static_cast<size_t>(h >> 32);
}

}  // namespace

ThreadTable& ThreadTable::Get() {
  static ThreadTable* const table = new ThreadTable();
  return *table;
}

size_t ThreadTable::size() const {
  const uint32_t used = used_.load(std::memory_order_acquire);
  return used < kCapacity ? used : kCapacity;
}

ThreadId ThreadTable::FindOrAdd(int32_t native_tid, uint64_t tstate_id) {
  constexpr size_t kMask = 2 * kCapacity - 1;
  for (size_t probe = 0, at = HashOf(native_tid, tstate_id) & kMask; probe <= kMask; ++probe, at = (at + 1) & kMask) {
    uint32_t entry = index_[at].load(std::memory_order_acquire);
    if (entry == 0) {
      if (used_.load(std::memory_order_relaxed) >= kCapacity) break;
      if (index_[at].compare_exchange_strong(entry, kReserved, std::memory_order_acq_rel)) {
        const uint32_t slot = used_.fetch_add(1, std::memory_order_relaxed);
        if (slot >= kCapacity) {  // raced past the end; the entry stays reserved, which only costs its place
          used_.store(kCapacity, std::memory_order_relaxed);
          break;
        }
        slots_[slot].native_tid.store(native_tid, std::memory_order_relaxed);
        slots_[slot].tstate_id.store(tstate_id, std::memory_order_relaxed);
        index_[at].store(slot + 1, std::memory_order_release);
        return slot + 1;
      }
    }
    // Another thread is publishing this entry: a few instructions, never a wait on a lock.
    for (int spin = 0; entry == kReserved && spin < 1000; ++spin) entry = index_[at].load(std::memory_order_acquire);
    if (entry == kReserved) continue;
    ThreadInfo& info = slots_[entry - 1];
    if (info.native_tid.load(std::memory_order_relaxed) != native_tid) continue;
    if (info.tstate_id.load(std::memory_order_relaxed) == tstate_id) return entry;
    if (native_tid == 0) continue;
    if (tstate_id != 0) info.tstate_id.store(tstate_id, std::memory_order_relaxed);
    return entry;
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

void ThreadTable::Reset() {
  generation_.fetch_add(1, std::memory_order_acq_rel);
  for (auto& entry : index_) entry.store(0, std::memory_order_relaxed);
  for (ThreadInfo& info : slots_) {
    info.native_tid.store(0, std::memory_order_relaxed);
    info.tstate_id.store(0, std::memory_order_relaxed);
    info.waiting_since_ns.store(0, std::memory_order_relaxed);
    info.gil_wait_ns.store(0, std::memory_order_relaxed);
    info.gil_waits.store(0, std::memory_order_relaxed);
    info.runtime_wait_ns.store(0, std::memory_order_relaxed);
    info.gil_delay_ns.store(0, std::memory_order_relaxed);
    info.schedstat_fd.store(-1, std::memory_order_relaxed);
    info.put_off_since_ns.store(0, std::memory_order_relaxed);
    info.in_mark.store(false, std::memory_order_relaxed);
  }
  refused_.store(0, std::memory_order_relaxed);
  used_.store(0, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_acq_rel);
}

bool ThreadHasEnded(int32_t native_tid) { return syscall(SYS_tgkill, getpid(), native_tid, 0) == -1 && errno == ESRCH; }

}  // namespace trainperf
