#include "trainperf/probe/page_faults.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr size_t kBytes = 8 << 20;

void* Take(int flags) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  memset(memory, 1, kBytes);
  return memory;
}

TEST(PageFaults, CountsThePagesThatAThreadTakes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer writes to shadow memory of its own";
#endif
  PageFaults faults;
  const int64_t before = faults.Read(syscall(SYS_gettid)).faults;
  void* memory = Take(MAP_PRIVATE);
  const int64_t pages = static_cast<int64_t>(kBytes) / PageBytes();
  const int64_t taken = faults.Read(syscall(SYS_gettid)).faults - before;
  EXPECT_GE(taken, pages);
  EXPECT_LE(taken, pages + pages / 4);
  munmap(memory, kBytes);
}

TEST(PageFaults, CountsTheKernelsTime) {
  PageFaults faults;
  const int64_t before_ns = faults.Read(syscall(SYS_gettid)).system_ns;
  ASSERT_GE(before_ns, 0);
  const int64_t start_ns = ThreadCpuNs();
  while (ThreadCpuNs() - start_ns < 200'000'000) munmap(Take(MAP_PRIVATE), kBytes);
  EXPECT_GE(faults.Read(syscall(SYS_gettid)).system_ns - before_ns, 20'000'000);
}

TEST(PageFaults, SeesWhatIsGivenBackAndNotWhatIsTaken) {
  PageFaults faults;
  faults.Look();
  void* memory = Take(MAP_PRIVATE);
  faults.Look();
  EXPECT_LT(faults.Read(syscall(SYS_gettid)).returned_bytes, static_cast<int64_t>(kBytes) / 8);
  faults.Look();
  munmap(memory, kBytes);
  faults.Look();
  void* again = Take(MAP_PRIVATE);
  faults.Look();
  const int64_t returned = faults.Read(syscall(SYS_gettid)).returned_bytes;
  EXPECT_GE(returned, static_cast<int64_t>(kBytes));
  EXPECT_LE(returned, static_cast<int64_t>(kBytes) + static_cast<int64_t>(kBytes) / 8);
  munmap(again, kBytes);
  faults.Look();  // only one look since: there is nothing to compare it with
  EXPECT_EQ(faults.Read(syscall(SYS_gettid)).returned_bytes, -1);
}

TEST(PageFaults, SharedMemoryIsNotTheHeaps) {
  PageFaults faults;
  void* memory = Take(MAP_SHARED);
  faults.Look();
  munmap(memory, kBytes);
  faults.Look();
  EXPECT_LT(faults.Read(syscall(SYS_gettid)).returned_bytes, static_cast<int64_t>(kBytes) / 8);
}

TEST(PageFaults, KnowsNothingOfAThreadThatIsGone) {
  const FaultReading reading = PageFaults().Read(0x3fffffff);
  EXPECT_EQ(reading.faults, -1);
  EXPECT_EQ(reading.system_ns, -1);
  EXPECT_EQ(reading.returned_bytes, -1);
}

TEST(MeasurePageFaultNs, IsAboutWhatAnotherLoopTakes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own memory is touched with each page, too";
#endif
  const int64_t said_ns = MeasurePageFaultNs();
  const int64_t start_ns = ThreadCpuNs();
  void* memory = Take(MAP_PRIVATE);
  const int64_t each_ns = (ThreadCpuNs() - start_ns) * PageBytes() / static_cast<int64_t>(kBytes);
  munmap(memory, kBytes);
  EXPECT_GT(said_ns, each_ns / 5);
  EXPECT_LT(said_ns, each_ns * 5);
}

}  // namespace
}  // namespace trainperf
