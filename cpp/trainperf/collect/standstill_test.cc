#include "trainperf/collect/standstill.h"

#include <gtest/gtest.h>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

int64_t DelayOfMarkAt(const Standstill& standstill, int64_t end_ns, uint8_t flags = kHasRunDelay) {
  Event mark{};
  mark.end_ns = end_ns;
  mark.run_delay_ns = 7;
  mark.flags = flags;
  standstill.Correct(&mark);
  return mark.run_delay_ns;
}

TEST(Standstill, ALongSleepThatNobodyCausedIsOne) {
  Standstill standstill;
  standstill.Woke(0, 100 * kMs, 100 * kMs, 0);
  EXPECT_EQ(standstill.SinceNs(0), 0);
  standstill.Woke(100 * kMs, 3230 * kMs, 100 * kMs, 30 * kMs);
  EXPECT_EQ(standstill.SinceNs(0), 3000 * kMs);
}

TEST(Standstill, ASleeperThatWaitedForACpuWasNotStopped) {
  Standstill standstill;
  standstill.Woke(0, 2000 * kMs, 100 * kMs, 1800 * kMs);
  EXPECT_EQ(standstill.SinceNs(0), 0);
}

TEST(Standstill, WhereTheKernelTellsNoRunDelayNothingIsSaid) {
  Standstill standstill;
  standstill.Woke(0, 2000 * kMs, 100 * kMs, -1);
  EXPECT_EQ(standstill.SinceNs(0), 0);
}

TEST(Standstill, MarksBeforeItAreLeftAsTheyAre) {
  Standstill standstill;
  standstill.Woke(0, 3100 * kMs, 100 * kMs, 0);
  EXPECT_EQ(DelayOfMarkAt(standstill, 90 * kMs), 7) << "the process may have run until then";
  EXPECT_EQ(DelayOfMarkAt(standstill, 3001 * kMs), 7 + 3000 * kMs);
  EXPECT_EQ(DelayOfMarkAt(standstill, 3001 * kMs, 0), 7) << "a mark that knows no run delay";
  standstill.Woke(3200 * kMs, 4300 * kMs, 100 * kMs, 0);
  EXPECT_EQ(DelayOfMarkAt(standstill, 3210 * kMs), 7 + 3000 * kMs);
  EXPECT_EQ(DelayOfMarkAt(standstill, 4290 * kMs), 7 + 4000 * kMs);
}

TEST(Standstill, ThoseOfBeforeAreLeftOutAndManyAreKeptAsOne) {
  Standstill standstill;
  int64_t at_ns = 0;
  for (int i = 0; i < 1000; ++i, at_ns += 1100 * kMs) standstill.Woke(at_ns, at_ns + 1100 * kMs, 100 * kMs, 0);
  EXPECT_EQ(standstill.SinceNs(0), 1000 * 1000 * kMs);
  EXPECT_EQ(standstill.SinceNs(10 * 1100 * kMs), 990 * 1000 * kMs);
  EXPECT_EQ(standstill.SinceNs(at_ns), 0);
}

TEST(Standstill, NobodyWaitedForTheGilInIt) {
  Standstill standstill;
  standstill.Woke(0, 3100 * kMs, 100 * kMs, 0);
  const auto waited_ns = [&standstill](int64_t start_ns, int64_t end_ns) {
    Event wait{};
    wait.kind = EventKind::kGilWait;
    wait.start_ns = start_ns;
    wait.end_ns = end_ns;
    standstill.Correct(&wait);
    EXPECT_EQ(wait.end_ns, end_ns);
    return wait.end_ns - wait.start_ns;
  };
  EXPECT_EQ(waited_ns(50 * kMs, 3054 * kMs), 4 * kMs);
  EXPECT_EQ(waited_ns(90 * kMs, 3050 * kMs), 0) << "it is longer than is known for certain";
  EXPECT_EQ(waited_ns(50 * kMs, 60 * kMs), 10 * kMs) << "before it";
  EXPECT_EQ(waited_ns(3060 * kMs, 3065 * kMs), 5 * kMs) << "after it";
}

}  // namespace
}  // namespace trainperf
