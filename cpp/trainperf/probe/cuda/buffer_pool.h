// Activity buffers: handed to CUPTI on the application's threads, taken back full on whichever thread CUPTI likes.
//
//   BufferPool& pool = BufferPool::Get();
//   pool.Request(&buffer, &size);             // in bufferRequested: no lock, no malloc, under 0.2 us
//   pool.Complete(buffer, valid);             // in bufferCompleted
//   pool.TakeCompleted(&full);                // the collector: in order of completion
//   pool.GiveBack(full[0]);                   // zeroes what was used
//
// One region of 32 buffers and 4 in reserve, of 1 MB each, mapped once and never unmapped, since CUPTI keeps what it
// was given for as long as it likes; touched only as far as it is needed. A buffer may be handed out in part: CUPTI's
// flush withholds a buffer with a record in flight, so at a low rate of launches a small buffer comes back sooner.

#ifndef TRAINPERF_PROBE_CUDA_BUFFER_POOL_H_
#define TRAINPERF_PROBE_CUDA_BUFFER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainperf {

class BufferPool {
 public:
  static constexpr int kBuffers = 32;
  static constexpr int kReserve = 4;  // for libraries that crash on NULL: handed out, and their records discarded
  static constexpr size_t kBufferSize = size_t{1} << 20;
  static constexpr size_t kSmallestSize = size_t{1} << 14;

  struct Full {
    uint8_t* buffer;
    size_t valid;
    int64_t requested_ns;
    bool discarded;  // a reserve buffer: its records are counted, not used
  };

  // The process' only pool; CUPTI's callbacks cannot be taken back, so it lives for ever.
  static BufferPool& Get();

  BufferPool();  // for tests
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // Called on the application's threads. A null buffer when there is none and NULL is allowed.
  void Request(uint8_t** buffer, size_t* size);
  // Called on the application's threads, CUPTI's, or ours in a flush.
  void Complete(uint8_t* buffer, size_t valid);

  // The collector's.
  void TakeCompleted(std::vector<Full>* full);
  void GiveBack(const Full& full);
  // Touches the next buffers to be handed out, so that the application's threads take no page faults.
  void Prepare();
  void SetSize(size_t size);           // of the buffers handed out from now on
  void SetMayRefuse(bool may_refuse);  // NULL rather than the reserve
  // When the oldest buffer that was not given back yet was handed out; 0: there is none. The reserve does not count.
  int64_t OldestOutNs() const;
  int out() const;
  // Of these, how many have something written in them, as far as can be seen: an idle CUPTI may keep an empty one.
  int begun() const;
  bool ok() const { return base_ != nullptr; }  // false: no memory

  // In a forked child: every request gets the reserve, every completion is ignored.
  void Die() { dead_.store(true, std::memory_order_relaxed); }

  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }  // got the reserve, or NULL
  uint64_t foreign() const { return foreign_.load(std::memory_order_relaxed); }  // completed, but not one of ours

 private:
  static constexpr int kAll = kBuffers + kReserve;

  struct Slot {
    std::atomic<int64_t> requested_ns{0};  // 0: not out
    std::atomic<uint64_t> order{0};
    std::atomic<size_t> valid{0};
    bool touched = false;  // the collector's
  };

  int Take(uint64_t among);
  uint8_t* At(int index) const { return base_ + static_cast<size_t>(index) * kBufferSize; }

  uint8_t* base_ = nullptr;
  Slot slots_[kAll];
  std::atomic<uint64_t> free_;
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> orders_{0};
  std::atomic<size_t> size_{kSmallestSize};
  std::atomic<bool> may_refuse_{false};
  std::atomic<bool> dead_{false};
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> foreign_{0};
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_BUFFER_POOL_H_
