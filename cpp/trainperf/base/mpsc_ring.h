// A bounded queue from many producers to one consumer, without locks.
//
//   MpscRing<Call> ring(1024);           // rounded up to a power of two
//   if (!ring.TryPush(call)) ...         // full: counted in dropped(), never waits
//   bool all = ring.Drain([](const Call& c) { ... });
//
// Any thread pushes, one consumes. Pushing never allocates. Of one producer the order is kept.

#ifndef TRAINPERF_BASE_MPSC_RING_H_
#define TRAINPERF_BASE_MPSC_RING_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/numeric/bits.h"
#include "trainperf/base/own_heap.h"

namespace trainperf {

template <typename T>
class MpscRing {
 public:
  explicit MpscRing(size_t capacity)
      : capacity_(absl::bit_ceil(std::max<size_t>(capacity, 2))), values_(capacity_), turns_(capacity_) {
    for (size_t i = 0; i < capacity_; ++i) new (&turns_[i]) Turn(i);
  }
  MpscRing(const MpscRing&) = delete;
  MpscRing& operator=(const MpscRing&) = delete;

  // Any thread. False, and counted, when the ring is full.
  bool TryPush(const T& value) {
    uint64_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Turn& turn = turns_[at & (capacity_ - 1)];
      const uint64_t free_for = turn.load(std::memory_order_acquire);
      if (free_for == at) {
        if (!head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        values_[at & (capacity_ - 1)] = value;
        turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (free_for < at) {  // still what was pushed a round ago
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      at = head_.load(std::memory_order_relaxed);
    }
  }

  // Consumer. Calls visit(const T&) for what was pushed before the call. False when a producer was stopped in the
  // middle of its push: what comes after it must wait for the next time.
  template <typename Visitor>
  bool Drain(Visitor&& visit) {
    const uint64_t head = head_.load(std::memory_order_acquire);
    for (; tail_ != head; ++tail_) {
      Turn& turn = turns_[tail_ & (capacity_ - 1)];
      if (turn.load(std::memory_order_acquire) != tail_ + 1) return false;
      visit(static_cast<const T&>(values_[tail_ & (capacity_ - 1)]));
      turn.store(tail_ + capacity_, std::memory_order_release);
    }
    return true;
  }

  // Any thread.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  size_t capacity() const { return capacity_; }

 private:
  // Of slot i: the number of the push that may fill it; one more, once it has. Of a single slot these were the same.
  using Turn = std::atomic<uint64_t>;

  const size_t capacity_;
  const Pages<T> values_;
  const Pages<Turn> turns_;
  alignas(64) std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> dropped_{0};
  alignas(64) uint64_t tail_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_BASE_MPSC_RING_H_
