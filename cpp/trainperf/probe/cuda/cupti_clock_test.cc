#include "trainperf/probe/cuda/cupti_clock.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr int64_t kRealtime = 1'700'000'000'000'000'000;

TEST(CuptiClock, FollowsAClockOfNanoseconds) {
  CuptiClock clock;
  for (int64_t ns = 1000 * kMs; ns < 2000 * kMs; ns += 100 * kMs) {
    EXPECT_FALSE(clock.Sample(ns, static_cast<uint64_t>(kRealtime + ns + (ns / kMs) % 7)));  // readings wobble
  }
  EXPECT_NEAR(static_cast<double>(clock.ToMonotonic(kRealtime + 1850 * kMs)), 1850.0 * kMs, 10);
  EXPECT_EQ(clock.jumps(), 0);
}

TEST(CuptiClock, LearnsTheUnitOfACounter) {  // a 2.9 GHz TSC, as Kineto leaves it behind
  CuptiClock clock;
  const auto tsc = [](int64_t ns) { return static_cast<uint64_t>(std::llround(static_cast<double>(ns) * 2.9)); };
  clock.Sample(1000 * kMs, tsc(1000 * kMs));
  clock.Sample(1002 * kMs, tsc(1002 * kMs));
  for (int64_t ns = 1100 * kMs; ns < 3000 * kMs; ns += 100 * kMs) EXPECT_FALSE(clock.Sample(ns, tsc(ns)));
  EXPECT_NEAR(static_cast<double>(clock.ToMonotonic(tsc(2850 * kMs))), 2850.0 * kMs, 1000);
}

TEST(CuptiClock, AStepForwardStartsANewPiece) {
  CuptiClock clock;
  const auto before = [](int64_t ns) { return static_cast<uint64_t>(kRealtime + ns); };
  const auto after = [](int64_t ns) { return static_cast<uint64_t>(kRealtime + ns + 5000 * kMs); };
  for (const int64_t ms : {1000, 1002, 1100, 1200}) clock.Sample(ms * kMs, before(ms * kMs));
  EXPECT_TRUE(clock.Sample(1300 * kMs, after(1300 * kMs)));
  clock.Sample(1302 * kMs, after(1302 * kMs));
  EXPECT_EQ(clock.jumps(), 1);
  EXPECT_EQ(clock.ToMonotonic(before(1190 * kMs)), 1190 * kMs);
  EXPECT_EQ(clock.ToMonotonic(before(1230 * kMs)), 1230 * kMs);  // after the last reading, before the step
  EXPECT_EQ(clock.ToMonotonic(after(1270 * kMs)), 1270 * kMs);   // after the step, before its first reading
}

TEST(CuptiClock, AStepBackIsToldApartByTheTimeItWouldBe) {
  CuptiClock clock;
  const auto before = [](int64_t ns) { return static_cast<uint64_t>(kRealtime + ns); };
  const auto after = [](int64_t ns) { return static_cast<uint64_t>(kRealtime + ns - 3600'000 * kMs); };
  for (const int64_t ms : {1000, 1002, 1100, 1200}) clock.Sample(ms * kMs, before(ms * kMs));
  EXPECT_TRUE(clock.Sample(1300 * kMs, after(1300 * kMs)));
  clock.Sample(1302 * kMs, after(1302 * kMs));
  EXPECT_EQ(clock.ToMonotonic(before(1220 * kMs)), 1220 * kMs);
  EXPECT_EQ(clock.ToMonotonic(after(1280 * kMs)), 1280 * kMs);
  EXPECT_EQ(clock.ToMonotonic(after(1301 * kMs)), 1301 * kMs);
}

TEST(CuptiClock, TurnsFromNanosecondsToACounterAndBack) {
  CuptiClock clock;
  const auto ns_clock = [](int64_t ns) { return static_cast<uint64_t>(kRealtime + ns); };
  const auto tsc = [](int64_t ns) { return static_cast<uint64_t>(ns) * 3; };
  for (const int64_t ms : {1000, 1002, 1100}) clock.Sample(ms * kMs, ns_clock(ms * kMs));
  EXPECT_TRUE(clock.Sample(1200 * kMs, tsc(1200 * kMs)));
  clock.Sample(1202 * kMs, tsc(1202 * kMs));
  EXPECT_FALSE(clock.Sample(1300 * kMs, tsc(1300 * kMs)));
  EXPECT_EQ(clock.ToMonotonic(tsc(1250 * kMs)), 1250 * kMs);
  EXPECT_TRUE(clock.Sample(1400 * kMs, ns_clock(1400 * kMs)));
  clock.Sample(1402 * kMs, ns_clock(1402 * kMs));
  EXPECT_EQ(clock.ToMonotonic(ns_clock(1390 * kMs)), 1390 * kMs);
  EXPECT_EQ(clock.ToMonotonic(tsc(1250 * kMs)), 1250 * kMs);
}

TEST(CuptiClock, AClockThatStandsIsNoClock) {
  CuptiClock clock;
  clock.Sample(1000 * kMs, 42);
  EXPECT_TRUE(clock.Sample(1100 * kMs, 42));
  EXPECT_TRUE(clock.Sample(1200 * kMs, 42));
  for (int i = 0; i < 100; ++i) clock.Sample((1300 + i * 100) * kMs, 42);  // bounded
  EXPECT_GT(clock.jumps(), 100);
}

}  // namespace
}  // namespace trainperf
