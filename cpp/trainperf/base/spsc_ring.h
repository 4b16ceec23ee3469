// A bounded queue between one producer and one consumer, without locks.
//
//   SpscRing<Event> ring(1024);          // rounded up to a power of two
//   if (!ring.TryPush(event)) ...        // full: counted in dropped(), never waits
//   ring.Drain([](const Event& e) { ... });
//
// One producer thread, one consumer thread. Pushing never allocates.

#ifndef TRAINPERF_BASE_SPSC_RING_H_
#define TRAINPERF_BASE_SPSC_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/numeric/bits.h"
#include "trainperf/base/own_heap.h"

namespace trainperf {

template <typename T>
class SpscRing {
 public:
  explicit SpscRing(size_t capacity) : capacity_(absl::bit_ceil(capacity)), slots_(capacity_) {}
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer. False, and counted, when the ring is full.
  bool TryPush(const T& value) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - cached_tail_ == capacity_) {
      cached_tail_ = tail_.load(std::memory_order_acquire);
      if (head - cached_tail_ == capacity_) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    }
    slots_[head & (capacity_ - 1)] = value;
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  // Consumer. Calls visit(const T&) for everything that was pushed before the call; returns how many.
  template <typename Visitor>
  size_t Drain(Visitor&& visit) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    const uint64_t head = head_.load(std::memory_order_acquire);
    for (uint64_t i = tail; i != head; ++i) visit(static_cast<const T&>(slots_[i & (capacity_ - 1)]));
    tail_.store(head, std::memory_order_release);
    return static_cast<size_t>(head - tail);
  }

  // Consumer.
  bool empty() const { return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed); }

  // When neither side is at work.
  void Clear() {
    Drain([](const T&) {});
    dropped_.store(0, std::memory_order_relaxed);
  }

  // Any thread.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  const Pages<T> slots_;
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t cached_tail_ = 0;  // the producer's; spares it the consumer's cache line
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

}  // namespace trainperf

#endif  // TRAINPERF_BASE_SPSC_RING_H_
