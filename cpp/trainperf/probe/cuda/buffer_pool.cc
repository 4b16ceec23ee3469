#include "trainperf/probe/cuda/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr uint64_t Bits(int count) { return (uint64_t{1} << count) - 1; }
constexpr uint64_t kNormal = Bits(BufferPool::kBuffers);
constexpr uint64_t kInReserve = Bits(BufferPool::kReserve) << BufferPool::kBuffers;
constexpr int kTouchAhead = 4;
constexpr int kSmallOnes = 8;  // out at once
constexpr size_t kPage = 4096;
constexpr int kRecordWords = 5;  // of the smallest record

}  // namespace

BufferPool& BufferPool::Get() {
  static BufferPool* const pool = new BufferPool();
  return *pool;
}

BufferPool::BufferPool() : free_(kNormal | kInReserve) {
  void* base =
      mmap(nullptr, kAll * kBufferSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base != MAP_FAILED) base_ = static_cast<uint8_t*>(base);
}

BufferPool::~BufferPool() {
  if (base_ != nullptr) munmap(base_, kAll * kBufferSize);
}

int BufferPool::Take(uint64_t among) {
  uint64_t free = free_.load(std::memory_order_relaxed);
  while ((free & among) != 0) {
    const int index = __builtin_ctzll(free & among);
    if (free_.compare_exchange_weak(free, free & ~(uint64_t{1} << index), std::memory_order_acq_rel)) return index;
  }
  return -1;
}

void BufferPool::Request(uint8_t** buffer, size_t* size) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  *buffer = nullptr;
  *size = 0;
  if (base_ == nullptr) return;
  int index = dead_.load(std::memory_order_relaxed) ? -1 : Take(kNormal);
  if (index < 0) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    if (may_refuse_.load(std::memory_order_relaxed)) return;
    index = Take(kInReserve);
    // None left even there: two writers in one buffer that nobody reads are better than a crash on NULL.
    if (index < 0) index = kAll - 1;
  }
  slots_[index].requested_ns.store(NowNs(), std::memory_order_release);
  *buffer = At(index);
  // A burst must not use up small buffers.
  const bool few = __builtin_popcountll(free_.load(std::memory_order_relaxed) & kNormal) < kBuffers - kSmallOnes;
  *size = few ? kBufferSize : size_.load(std::memory_order_relaxed);
}

void BufferPool::Complete(uint8_t* buffer, size_t valid) {
  if (base_ == nullptr || buffer < base_ || buffer >= base_ + kAll * kBufferSize) {
    if (buffer != nullptr) foreign_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (dead_.load(std::memory_order_relaxed)) return;
  const int index = static_cast<int>(static_cast<size_t>(buffer - base_) / kBufferSize);
  Slot& slot = slots_[index];
  if (slot.requested_ns.load(std::memory_order_acquire) == 0) return;  // completed twice
  slot.valid.store(std::min(valid, kBufferSize), std::memory_order_relaxed);
  slot.order.store(orders_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  done_.fetch_or(uint64_t{1} << index, std::memory_order_acq_rel);
}

void BufferPool::TakeCompleted(std::vector<Full>* full) {
  uint64_t done = done_.exchange(0, std::memory_order_acq_rel);
  std::vector<std::pair<uint64_t, int>> in_order;
  for (; done != 0; done &= done - 1) {
    const int index = __builtin_ctzll(done);
    in_order.emplace_back(slots_[index].order.load(std::memory_order_relaxed), index);
  }
  std::sort(in_order.begin(), in_order.end());
  for (const auto& [order, index] : in_order) {
    full->push_back({At(index), slots_[index].valid.load(std::memory_order_relaxed),
                     slots_[index].requested_ns.load(std::memory_order_relaxed), index >= kBuffers});
  }
}

void BufferPool::GiveBack(const Full& full) {
  const int index = static_cast<int>(static_cast<size_t>(full.buffer - base_) / kBufferSize);
  memset(full.buffer, 0, std::min(full.valid + kPage, kBufferSize));  // a page more, for a record that was begun
  slots_[index].requested_ns.store(0, std::memory_order_release);
  free_.fetch_or(uint64_t{1} << index, std::memory_order_acq_rel);
}

void BufferPool::Prepare() {
  if (base_ == nullptr) return;
  int ahead = 0;
  const size_t size = size_.load(std::memory_order_relaxed);
  // Take() hands out the lowest free one; while it is taken here the application gets the next.
  for (int index = 0; index < kBuffers && ahead < kTouchAhead; ++index) {
    const uint64_t bit = uint64_t{1} << index;
    if ((free_.load(std::memory_order_relaxed) & bit) == 0) continue;
    ++ahead;
    if (slots_[index].touched || Take(bit) != index) continue;
    memset(At(index), 0, size);
    slots_[index].touched = true;
    free_.fetch_or(bit, std::memory_order_acq_rel);
  }
}

void BufferPool::SetSize(size_t size) {
  size_.store(std::clamp(size & ~(kPage - 1), kSmallestSize, kBufferSize), std::memory_order_relaxed);
}

void BufferPool::SetMayRefuse(bool may_refuse) { may_refuse_.store(may_refuse, std::memory_order_relaxed); }

int64_t BufferPool::OldestOutNs() const {
  int64_t oldest = 0;
  for (int index = 0; index < kBuffers; ++index) {
    const int64_t requested_ns = slots_[index].requested_ns.load(std::memory_order_acquire);
    if (requested_ns != 0 && (oldest == 0 || requested_ns < oldest)) oldest = requested_ns;
  }
  return oldest;
}

// Reads what CUPTI may be writing just now; whichever of the two it sees will do.
__attribute__((no_sanitize("thread"))) int BufferPool::begun() const {
  int count = 0;
  for (int index = 0; index < kAll; ++index) {
    if (slots_[index].requested_ns.load(std::memory_order_acquire) == 0) continue;
    const volatile uint64_t* const words = reinterpret_cast<const uint64_t*>(At(index));
    bool written = false;
    for (int i = 0; i < kRecordWords; ++i) written |= words[i] != 0;
    count += written;
  }
  return count;
}

int BufferPool::out() const {
  int count = 0;
  for (const Slot& slot : slots_) count += slot.requested_ns.load(std::memory_order_relaxed) != 0;
  return count;
}

}  // namespace trainperf
