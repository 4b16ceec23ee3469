#include "trainperf/base/off_cpu.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

class OffCpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!OffCpu::Supported()) GTEST_SKIP() << "no rseq here: every mark reads the clocks";
  }
};

// Of a short one the timer may ring before the thread has left its CPU, where a host takes that away meanwhile.
TEST_F(OffCpuTest, ASleepIsSeen) {
  OffCpu off_cpu = OffCpu::ForThisThread();
  for (int i = 0; i < 20; ++i) {
    off_cpu.Arm();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(off_cpu.StillOn());
  }
}

// Whoever is said to have stayed on its CPU has its wall time as CPU time. A few are let go: a virtual CPU that its
// host takes away is seen by neither.
TEST_F(OffCpuTest, StayingOnMeansCpuTimeIsWallTime) {
  OffCpu off_cpu = OffCpu::ForThisThread();
  int stayed = 0, wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t cpu = ThreadCpuNs(), wall = NowNs();
    off_cpu.Arm();
    while (NowNs() - wall < 100'000) {
    }
    const bool still_on = off_cpu.StillOn();
    const int64_t wall_ns = NowNs() - wall, cpu_ns = ThreadCpuNs() - cpu;
    if (!still_on) continue;
    ++stayed;
    wrong += wall_ns - cpu_ns > 20'000 ? 1 : 0;
  }
  EXPECT_GT(stayed, 200);
  EXPECT_LE(wrong, stayed / 50 + 1);
}

TEST_F(OffCpuTest, EachThreadHasItsOwn) {
  OffCpu main_thread = OffCpu::ForThisThread();
  std::thread([] {
    OffCpu other = OffCpu::ForThisThread();
    other.Arm();
    std::this_thread::sleep_for(std::chrono::microseconds(10));
    EXPECT_FALSE(other.StillOn());
  }).join();
  main_thread.Arm();
  EXPECT_TRUE(main_thread.works());
}

// An armed thread forks, is preempted, gets signals: the kernel must find nothing to kill it for.
TEST_F(OffCpuTest, AnArmedChildLives) {
  OffCpu off_cpu = OffCpu::ForThisThread();
  off_cpu.Arm();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 1000; ++i) {
      off_cpu.Arm();
      usleep(1);
    }
    _exit(off_cpu.StillOn() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace trainperf
