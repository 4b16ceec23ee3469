#include "trainperf/base/own_heap.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace trainperf {
namespace {

// glibc's main arena, where the main thread's blocks are, ends at the program break; all others lie above.
bool InMainArena(const void* block) { return block < sbrk(0); }

TEST(OnOwnHeap, LeavesTheCallersHeapAsItIs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has another malloc";
#endif
  const auto here = std::make_unique<char[]>(1000);
  EXPECT_TRUE(InMainArena(here.get()));
  std::unique_ptr<char[]> there;
  ASSERT_TRUE(OnOwnHeap([&] { there = std::make_unique<char[]>(1000); }).ok());
  EXPECT_FALSE(InMainArena(there.get()));
}

TEST(OnOwnHeap, ThrowsWhatItThrows) {
  EXPECT_THROW(OnOwnHeap([] { throw std::length_error("too long"); }).IgnoreError(), std::length_error);
}

TEST(OnOwnHeap, LeavesSignalsToTheUser) {
  sigset_t mask, here;
  sigemptyset(&mask);
  ASSERT_TRUE(OnOwnHeap([&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); }).ok());
  EXPECT_EQ(sigismember(&mask, SIGINT), 1);
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  EXPECT_EQ(sigismember(&here, SIGINT), 0);
}

TEST(Pages, AreZeroAndCanBeWritten) {
  Pages<int64_t> numbers(1 << 20);
  EXPECT_TRUE(std::all_of(numbers.get(), numbers.get() + (1 << 20), [](int64_t number) { return number == 0; }));
  numbers[(1 << 20) - 1] = 7;
  EXPECT_EQ(numbers[(1 << 20) - 1], 7);
}

TEST(Pages, ThrowWhatNewThrows) { EXPECT_THROW(Pages<char>(SIZE_MAX / 2), std::bad_alloc); }

}  // namespace
}  // namespace trainperf
