#include "trainperf/probe/host.h"

#include <gtest/gtest.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

std::string WriteTemporary(const std::string& text) {
  std::string path = testing::TempDir() + "cpu.stat.XXXXXX";
  const int fd = mkstemp(path.data());
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(fd);
  return path;
}

TEST(HostProbe, ReadsThisMachine) {
  const std::string memory(8 << 20, 'x');  // a test program has next to none of its own
  const HostFacts facts = HostProbe().Read();
  EXPECT_GT(facts.process_cpu_ns, 0);
  EXPECT_GT(facts.machine_busy_ns, 0);
  EXPECT_GT(facts.machine_idle_ns, 0);
  EXPECT_GT(facts.rss_bytes, static_cast<int64_t>(memory.size()));
  EXPECT_GE(facts.threads, 1);
  EXPECT_GE(facts.runnable, 1);
}

TEST(HostProbe, ReadsCgroupV2AndItsChanges) {
  const std::string path = WriteTemporary("usage_usec 10\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1500\n");
  const HostProbe host({path});
  EXPECT_EQ(host.ReadThrottledNs(), 1'500'000);
  std::ofstream(path) << "usage_usec 10\nthrottled_usec 2500\n";
  EXPECT_EQ(host.ReadThrottledNs(), 2'500'000);
  EXPECT_EQ(host.throttled_why(), "");
  unlink(path.c_str());
}

TEST(HostProbe, ReadsCgroupV1) {
  const std::string path = WriteTemporary("nr_periods 4\nnr_throttled 2\nthrottled_time 1500\n");
  EXPECT_EQ(HostProbe({path}).ReadThrottledNs(), 1500);
  unlink(path.c_str());
}

TEST(HostProbe, AQuotaOfAParentCounts) {
  const std::string own = WriteTemporary("throttled_usec 1\n"), parent = WriteTemporary("throttled_usec 20\n");
  EXPECT_EQ(HostProbe({own, "/nowhere/cpu.stat", parent}).ReadThrottledNs(), 21'000);
  unlink(own.c_str());
  unlink(parent.c_str());
}

TEST(HostProbe, SaysWhyThereIsNoThrottling) {
  const std::string path = WriteTemporary("nothing of the kind\n");
  const HostProbe host({path});
  EXPECT_EQ(host.ReadThrottledNs(), -1);
  EXPECT_NE(host.throttled_why(), "");
  unlink(path.c_str());
}

TEST(ReadProcess, TellsTheLivingFromTheGone) {
  const int64_t start = ThreadCpuNs();
  while (ThreadCpuNs() - start < 30'000'000) {  // three ticks of the kernel's count
  }
  const ProcessFacts self = ReadProcess(getpid());
  EXPECT_TRUE(self.alive);
  EXPECT_EQ(self.state, 'R');
  EXPECT_GE(self.cpu_ns, 10'000'000);
  EXPECT_FALSE(ReadProcess(0x3fffffff).alive);
}

TEST(ReadProcessWait, TellsALockThatProcessesShareFromOneOfAProcessAndASleep) {
  auto* semaphore =
      static_cast<sem_t*>(mmap(nullptr, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(semaphore, MAP_FAILED);
  for (const int shared : {0, 1, 2}) {  // 2: no semaphore
    ASSERT_EQ(sem_init(semaphore, shared == 1, 0), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (shared == 2) pause();
      sem_wait(semaphore);
      _exit(0);
    }
    ProcessWait wait;
    for (int tries = 0; tries < 1000; ++tries) {
      wait = ReadProcessWait(child);
      if (!wait.known || wait.syscall == SYS_futex || (shared == 2 && wait.syscall >= 0)) break;
      usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (!wait.known) GTEST_SKIP() << "/proc/PID/syscall cannot be read here";
    EXPECT_EQ(wait.shared, shared == 1);
    EXPECT_EQ(wait.syscall == SYS_futex, shared != 2);
  }
  munmap(semaphore, sizeof(sem_t));
  EXPECT_FALSE(ReadProcessWait(-1).known);
}

TEST(ReadThreadComm, NamesAThread) {
  EXPECT_NE(ReadThreadComm(getpid()), "");
  EXPECT_EQ(ReadThreadComm(0x3fffffff), "");
}

}  // namespace
}  // namespace trainperf
