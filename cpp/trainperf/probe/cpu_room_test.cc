#include "trainperf/probe/cpu_room.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace trainperf {
namespace {

TEST(CpuRoom, FollowsAThreadThatIsPinned) {
  std::thread([] {
    const CpuRoom before = ReadCpuRoom(0);
    ASSERT_GE(before.count, 1);
    const int cpu = sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const CpuRoom pinned = ReadCpuRoom(syscall(SYS_gettid));
    EXPECT_EQ(pinned.count, 1);
    EXPECT_EQ(pinned.cpus, std::to_string(cpu));
    EXPECT_EQ(MostCpus(), before.count);
    EXPECT_EQ(ReadCpuRoom(0), pinned);  // as before
  }).join();
}

TEST(CpuRoom, NoThread) { EXPECT_EQ(ReadCpuRoom(0x7FFFFFF0).count, -1); }

}  // namespace
}  // namespace trainperf
