#include "trainperf/probe/cuda/buffer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "trainperf/probe/cuda/correlations.h"
#include "trainperf/probe/cuda/tier_control.h"

namespace trainperf {
namespace {

std::vector<BufferPool::Full> Taken(BufferPool& pool) {
  std::vector<BufferPool::Full> full;
  pool.TakeCompleted(&full);
  return full;
}

TEST(BufferPool, HandsOutZeroedBuffersAndTakesThemBackInOrder) {
  BufferPool pool;
  uint8_t *a = nullptr, *b = nullptr;
  size_t size = 0;
  pool.Request(&a, &size);
  pool.Request(&b, &size);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(a, b);
  EXPECT_EQ(size, BufferPool::kSmallestSize);
  EXPECT_NE(pool.OldestOutNs(), 0);
  memset(b, 0xff, 1000);
  pool.Complete(b, 1000);
  pool.Complete(a, 0);
  auto full = Taken(pool);
  ASSERT_EQ(full.size(), 2u);
  EXPECT_EQ(full[0].buffer, b);
  EXPECT_EQ(full[0].valid, 1000u);
  for (const auto& one : full) pool.GiveBack(one);
  EXPECT_EQ(pool.OldestOutNs(), 0);
  EXPECT_EQ(pool.out(), 0);
  for (int i = 0; i < BufferPool::kBuffers; ++i) {
    uint8_t* buffer = nullptr;
    pool.Request(&buffer, &size);
    for (size_t at = 0; at < size; ++at) ASSERT_EQ(buffer[at], 0);
  }
}

TEST(BufferPool, OutOfBuffersItRefusesOrHandsOutTheReserve) {
  BufferPool pool;
  uint8_t* buffer = nullptr;
  size_t size = 0;
  for (int i = 0; i < BufferPool::kBuffers; ++i) pool.Request(&buffer, &size);
  for (int i = 0; i < 2 * BufferPool::kReserve; ++i) {  // never NULL, though the reserve is used twice
    pool.Request(&buffer, &size);
    ASSERT_NE(buffer, nullptr);
  }
  pool.Complete(buffer, 100);
  auto full = Taken(pool);
  ASSERT_EQ(full.size(), 1u);
  EXPECT_TRUE(full[0].discarded);
  pool.SetMayRefuse(true);
  pool.Request(&buffer, &size);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(pool.refused(), 2u * BufferPool::kReserve + 1);
}

TEST(BufferPool, AnothersBuffersAndTwiceCompletedOnesAreNotOurs) {
  BufferPool pool;
  uint8_t another[64];
  pool.Complete(another, 64);
  pool.Complete(nullptr, 0);
  EXPECT_EQ(pool.foreign(), 1u);
  uint8_t* buffer = nullptr;
  size_t size = 0;
  pool.Request(&buffer, &size);
  pool.Complete(buffer, 10);
  pool.GiveBack(Taken(pool)[0]);
  pool.Complete(buffer, 10);
  EXPECT_TRUE(Taken(pool).empty());
}

TEST(BufferPool, ADeadOneHandsOutOnlyTheReserve) {
  BufferPool pool;
  pool.Die();
  uint8_t* buffer = nullptr;
  size_t size = 0;
  for (int i = 0; i < 10; ++i) {
    pool.Request(&buffer, &size);
    ASSERT_NE(buffer, nullptr);
    pool.Complete(buffer, 10);
  }
  EXPECT_TRUE(Taken(pool).empty());
}

TEST(BufferPool, SizesAreWithinTheirBounds) {
  BufferPool pool;
  uint8_t* buffer = nullptr;
  size_t size = 0;
  pool.SetSize(0);
  pool.Request(&buffer, &size);
  EXPECT_EQ(size, BufferPool::kSmallestSize);
  pool.SetSize(size_t{1} << 30);
  pool.Request(&buffer, &size);
  EXPECT_EQ(size, BufferPool::kBufferSize);
}

TEST(BufferPool, ThreadsThatFillAndACollectorLoseNothing) {
  BufferPool pool;
  pool.SetMayRefuse(true);
  std::atomic<int64_t> filled{0}, refused{0};
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        uint8_t* buffer = nullptr;
        size_t size = 0;
        pool.Request(&buffer, &size);
        if (buffer == nullptr) {
          refused.fetch_add(1);
          std::this_thread::yield();
          continue;
        }
        if (buffer[0] != 0) ADD_FAILURE() << "a buffer that somebody else is writing";
        buffer[0] = 1;
        filled.fetch_add(1);
        pool.Complete(buffer, 1);
      }
      running.fetch_sub(1);
    });
  }
  int64_t taken = 0;
  for (bool last = false; !last;) {
    last = running.load() == 0;
    pool.Prepare();
    for (const auto& full : Taken(pool)) {
      ++taken;
      pool.GiveBack(full);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, filled.load());
  EXPECT_EQ(taken + refused.load(), 20000);
  EXPECT_EQ(pool.out(), 0);
}

TEST(Correlations, WrapAndCameOutOfOrder) {
  Correlations ids;
  EXPECT_EQ(ids.Widen(0), 0u);
  const uint64_t before = ids.Widen(0xfffffffe);
  const uint64_t after = ids.Widen(1);
  EXPECT_EQ(after - before, 3u);
  EXPECT_EQ(ids.Widen(0xffffffff), before + 1);  // late
  EXPECT_EQ(ids.Widen(0), 0u);
  EXPECT_EQ(ids.Widen(2), after + 1);
  uint64_t last = after + 1;
  for (uint32_t i = 1; i < 40; ++i) {  // ten times round
    const uint64_t wide = ids.Widen(2 + i * 0x40000000u);
    ASSERT_EQ(wide, last + 0x40000000u);
    last = wide;
  }
}

TEST(TierControl, OverBudgetKernelsAreKeptUnlessTheProgramPaysFarTooMuch) {
  TierControl control;
  for (int i = 0; i < 100; ++i) control.Judge(3, false);
  EXPECT_EQ(control.tier(), CudaTier::kFull);
  EXPECT_FALSE(control.Judge(4, true));
  EXPECT_TRUE(control.Judge(4, true));
  EXPECT_EQ(control.tier(), CudaTier::kSync);
}

TEST(TierControl, GoesDownByPersistenceAndUpByPatience) {
  TierControl control;
  EXPECT_FALSE(control.Judge(3, true));
  EXPECT_FALSE(control.Judge(0.9, true));  // one second over is a spike
  EXPECT_FALSE(control.Judge(3, true));
  EXPECT_TRUE(control.Judge(3, true));
  EXPECT_EQ(control.tier(), CudaTier::kSync);
  for (int i = 0; i < 29; ++i) EXPECT_FALSE(control.Judge(0.2, true));
  EXPECT_FALSE(control.Judge(0.5, true));  // not well under: the count begins anew
  for (int i = 0; i < 29; ++i) EXPECT_FALSE(control.Judge(0.2, true));
  EXPECT_TRUE(control.Judge(0.2, true));
  EXPECT_EQ(control.tier(), CudaTier::kFull);
  int changes = 0;
  for (int i = 0; i < 1000; ++i) changes += control.Judge(i % 40 < 2 ? 5 : 0.1, true);  // it would swing for ever
  EXPECT_LE(changes, 5);
  EXPECT_EQ(control.tier(), CudaTier::kOff);
  EXPECT_FALSE(control.Judge(0, true));
}

}  // namespace
}  // namespace trainperf
