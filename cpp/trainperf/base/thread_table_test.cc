#include "trainperf/base/thread_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace trainperf {
namespace {

TEST(ThreadTable, GivesOneIdToOneThread) {
  ThreadTable& table = ThreadTable::Get();
  table.Reset();
  const ThreadId first = table.FindOrAdd(100, 1);
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(table.FindOrAdd(100, 1), first);
  EXPECT_EQ(table.FindOrAdd(100, 2), first);  // a native thread has a new thread state at each call into Python
  EXPECT_EQ(table.info(first).tstate_id.load(), 2u);
  EXPECT_EQ(table.FindOrAdd(100, 0), first);
  EXPECT_EQ(table.info(first).tstate_id.load(), 2u);
  EXPECT_EQ(table.size(), 1u);
}

TEST(ThreadTable, WithoutATidThreadStatesTellThreadsApart) {
  ThreadTable& table = ThreadTable::Get();
  table.Reset();
  const ThreadId first = table.FindOrAdd(0, 1);
  EXPECT_EQ(table.FindOrAdd(0, 1), first);
  EXPECT_NE(table.FindOrAdd(0, 2), first);
}

TEST(ThreadTable, RefusesWhenFullAndCountsIt) {
  ThreadTable& table = ThreadTable::Get();
  table.Reset();
  for (size_t i = 0; i < ThreadTable::kCapacity; ++i) ASSERT_NE(table.FindOrAdd(static_cast<int32_t>(i + 1), 0), 0u);
  EXPECT_EQ(table.FindOrAdd(1'000'000, 0), 0u);
  EXPECT_EQ(table.refused(), 1u);
  EXPECT_NE(table.FindOrAdd(1, 0), 0u);  // the known ones are still found
  EXPECT_EQ(table.size(), ThreadTable::kCapacity);
  table.Reset();
  EXPECT_EQ(table.size(), 0u);
}

TEST(ThreadTable, ResetTellsWhoCaches) {
  ThreadTable& table = ThreadTable::Get();
  const uint64_t before = table.generation();
  table.Reset();
  EXPECT_NE(table.generation(), before);
}

// Run under TSan.
TEST(ThreadTable, ThreadsAgree) {
  ThreadTable& table = ThreadTable::Get();
  table.Reset();
  constexpr int kThreads = 4, kIds = 300;
  std::vector<std::vector<ThreadId>> found(kThreads, std::vector<ThreadId>(kIds));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kIds; ++i) found[t][i] = table.FindOrAdd(i + 1, 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(found[t], found[0]);
  EXPECT_EQ(std::set<ThreadId>(found[0].begin(), found[0].end()).size(), static_cast<size_t>(kIds));
  table.Reset();
}

}  // namespace
}  // namespace trainperf
