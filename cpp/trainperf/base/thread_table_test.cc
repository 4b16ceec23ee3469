#include "trainperf/base/thread_table.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
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

TEST(ThreadHasEnded, TellsTheLivingFromTheGone) {
  const auto tid_here = [] { return static_cast<int32_t>(syscall(SYS_gettid)); };
  EXPECT_FALSE(ThreadHasEnded(tid_here()));
  EXPECT_FALSE(ThreadHasEnded(0));  // not known
  std::promise<int32_t> begun;
  std::promise<void> end;
  std::thread thread([&] {
    begun.set_value(tid_here());
    end.get_future().wait();
  });
  const int32_t tid = begun.get_future().get();
  EXPECT_FALSE(ThreadHasEnded(tid));
  end.set_value();
  thread.join();
  while (!ThreadHasEnded(tid)) std::this_thread::yield();  // join() returns a moment earlier
}

// A /proc that is not there, or of another PID namespace, must not bury the living.
TEST(ThreadHasEnded, NeedsNoProc) {
  const pid_t child = fork();
  if (child == 0) {
    if (chroot("/sys") != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot("/sys") != 0)) _exit(77);
    const auto tid = static_cast<int32_t>(syscall(SYS_gettid));
    _exit(access("/proc/self/task", F_OK) != 0 && !ThreadHasEnded(tid) && ThreadHasEnded(0x3fffffff) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this process may not leave its root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
