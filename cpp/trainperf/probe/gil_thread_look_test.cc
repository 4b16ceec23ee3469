#include "trainperf/probe/gil_thread_look.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>

#include "trainperf/cpython/process_memory.h"

namespace trainperf {
namespace {

constexpr int64_t kSoonNs = 100'000'000;

struct Wait {
  std::string name;
  int operation;  // of futex(2)
  clockid_t clock;
  bool relative;
};

// A thread that is asleep in futex(2) until it is destroyed.
class Sleeper {
 public:
  Sleeper(const Wait& wait, const timespec* timeout) {
    std::atomic<int32_t> tid{0};
    thread_ = std::thread([this, &wait, timeout, &tid] {
      tid = syscall(SYS_gettid);
      while (word_ == 0) {
        syscall(SYS_futex, &word_, wait.operation | FUTEX_PRIVATE_FLAG, 0, timeout, nullptr, FUTEX_BITSET_MATCH_ANY);
      }
    });
    while (tid == 0) std::this_thread::yield();
    look_.Follow(tid);
  }

  ~Sleeper() {
    word_ = 1;
    syscall(SYS_futex, &word_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
    thread_.join();
  }

  // Once it is asleep in a futex. `word_` is what tells that it is ours.
  ThreadLook::State Look() const {
    ThreadLook::State state = look_.Read();
    while (!ThreadLook::IsFutex(state.syscall) || state.first_argument != reinterpret_cast<uint64_t>(&word_)) {
      std::this_thread::yield();
      state = look_.Read();
    }
    return state;
  }

 private:
  std::atomic<int32_t> word_{0};
  ThreadLook look_;
  std::thread thread_;
};

timespec Timeout(const Wait& wait, int64_t in_ns) {
  timespec now{};
  if (!wait.relative) clock_gettime(wait.clock, &now);
  const int64_t nanoseconds = now.tv_nsec + in_ns;
  return {static_cast<time_t>(now.tv_sec + nanoseconds / 1'000'000'000),
          static_cast<int32_t>(nanoseconds % 1'000'000'000)};
}

class EndsSoon : public testing::TestWithParam<Wait> {
 protected:
  void SetUp() override {
    if (!ThreadLook::Works()) GTEST_SKIP() << "this kernel or container shows no system calls";
    if (memory_.way() == ProcessMemory::Way::kNone) GTEST_SKIP() << "this process cannot read its own memory";
  }

  bool Of(const timespec* timeout) const {
    return ThreadLook::EndsSoon(memory_, Sleeper(GetParam(), timeout).Look(), kSoonNs);
  }

  const ProcessMemory memory_ = ProcessMemory::Open();
};

TEST_P(EndsSoon, OnlyWhereTheTimeoutIsDue) {
  const timespec soon = Timeout(GetParam(), kSoonNs * 9 / 10), late = Timeout(GetParam(), 60'000'000'000);
  EXPECT_TRUE(Of(&soon));
  EXPECT_FALSE(Of(&late));
  EXPECT_FALSE(Of(nullptr));
}

INSTANTIATE_TEST_SUITE_P(Futex, EndsSoon,
                         testing::Values(Wait{"relative", FUTEX_WAIT, CLOCK_MONOTONIC, true},
                                         Wait{"monotonic", FUTEX_WAIT_BITSET, CLOCK_MONOTONIC, false},
                                         Wait{"realtime", FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, CLOCK_REALTIME,
                                              false}),
                         [](const auto& futex) { return futex.param.name; });

TEST(ThreadLook, ATimeoutThatIsNoTimeIsNotDue) {
  const ProcessMemory memory = ProcessMemory::Open();
  ThreadLook::State state{ThreadLook::Kind::kAsleep, SYS_futex, 0, 0, 0, 0, true, false};
  const timespec garbage[] = {{INT64_MIN, 0}, {INT64_MAX, 0}, {0, INT64_MIN}, {0, INT64_MAX}, {0, -1}};
  for (const timespec& time : garbage) {
    state.timeout = reinterpret_cast<uint64_t>(&time);
    EXPECT_FALSE(ThreadLook::EndsSoon(memory, state, kSoonNs)) << time.tv_sec << " s " << time.tv_nsec << " ns";
  }
  state.timeout = 8;  // where nothing is
  EXPECT_FALSE(ThreadLook::EndsSoon(memory, state, kSoonNs));
}

}  // namespace
}  // namespace trainperf
