// The windows by simulated time: what they cost, that chance is fair to each step, and what comes out of turn.

#include "trainperf/probe/cuda/trace_windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <vector>

namespace trainperf {
namespace {

constexpr double kShare = 0.005;
constexpr int64_t kSecond = 1'000'000'000;

// A loop whose steps cost something to trace, which is told 0.2 s late.
struct Loop {
  double step_ns = 5e6;
  double cost_ns = 350e3;  // of a traced step
  double lean_ns = 0;      // of each step
  double switch_ns = 300e3;
  uint64_t seed = 1;
  std::function<double(int64_t)> step_of = nullptr;  // the time of a step, by its number
  std::function<uint32_t(int64_t)> kinds_of = nullptr;

  std::vector<bool> traced;  // by step
  int64_t windows = 0;
  double spent_ns = 0, wall_ns = 0, lean_rate = 0;

  void Run(int64_t steps) {
    TraceWindows controller(kShare, seed, 0, 0);
    std::deque<std::pair<double, double>> told = {{-1, 0}};
    double now_ns = 0, looked_ns = 0;
    const auto known = [&] {
      while (told.size() > 1 && told[1].first <= now_ns - 200e6) told.pop_front();
      return static_cast<int64_t>(told.front().second);
    };
    for (int64_t step = 0; step < steps; ++step) {
      const bool on = controller.tracing();
      const double begun_ns = now_ns;
      traced.push_back(on);
      spent_ns += (on ? cost_ns : 0) + lean_ns;
      now_ns += (step_of ? step_of(step) : step_ns) + (on ? cost_ns : 0) + lean_ns;
      told.emplace_back(now_ns, spent_ns);
      if (kinds_of) controller.SawStep(kinds_of(step), static_cast<int64_t>(begun_ns), on);
      if (now_ns - looked_ns >= 100e6) {
        looked_ns = now_ns;
        controller.Look(static_cast<int64_t>(now_ns), step + 1, known());
      }
      if (step + 1 >= controller.due()) {
        controller.Switched(static_cast<int64_t>(now_ns), step + 1);
        spent_ns += switch_ns;
        now_ns += switch_ns;
        controller.SwitchTook(static_cast<int64_t>(switch_ns));
      }
    }
    wall_ns = now_ns;
    windows = controller.windows();
    lean_rate = controller.lean_rate();
  }
  double share() const { return spent_ns / wall_ns; }
};

TEST(TraceWindowsTest, CostStaysWithinItsShareOnceTheStartIsPaidBack) {
  for (const double step_ns : {0.7e6, 5e6, 60e6, 900e6}) {
    for (const double cost : {0.02, 0.07, 0.3}) {
      Loop loop;
      loop.step_ns = step_ns;
      loop.cost_ns = cost * step_ns;
      loop.Run(static_cast<int64_t>(200 * 1e9 / step_ns));
      const double start = 2e7 + 5 * loop.cost_ns;  // told late, and the last window may not be paid back yet
      EXPECT_LE(loop.spent_ns, kShare * loop.wall_ns * 1.15 + 2 * start) << step_ns << " " << cost;
      EXPECT_GE(loop.spent_ns, kShare * loop.wall_ns * 0.5) << step_ns << " " << cost;
      if (loop.cost_ns < 0.2e9) {
        EXPECT_GT(loop.windows, 3) << step_ns << " " << cost;
      }
    }
  }
}

TEST(TraceWindowsTest, WhatCostsNoMoreThanItsShareIsTracedWhole) {
  Loop loop;
  loop.cost_ns = 0.004 * loop.step_ns;
  loop.Run(20'000);
  EXPECT_EQ(loop.windows, 1);
  for (const bool traced : loop.traced) ASSERT_TRUE(traced);
}

TEST(TraceWindowsTest, TheFirstStepsAreTraced) {
  Loop loop;
  loop.Run(400);
  for (size_t step = 0; step < 25; ++step) EXPECT_TRUE(loop.traced[step]) << step;
  EXPECT_FALSE(loop.traced.back());
}

TEST(TraceWindowsTest, ALoopsPeriodIsNoMatter) {
  // Of each hundred steps one takes 100 ms, which is when a clock that looks ten times a second strikes.
  std::vector<double> by_phase(100);
  double all = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Loop loop;
    loop.seed = seed;
    loop.step_of = [](int64_t step) { return step % 100 == 0 ? 100e6 : 5e6; };
    loop.Run(20'000);
    for (size_t step = 1000; step < loop.traced.size(); ++step) {
      if (!loop.traced[step]) continue;
      ++by_phase[step % 100];
      ++all;
    }
  }
  const double mean = all / 100;
  ASSERT_GT(mean, 500);
  for (size_t phase = 0; phase < 100; ++phase) EXPECT_NEAR(by_phase[phase] / mean, 1, 0.25) << phase;
}

TEST(TraceWindowsTest, ASeedDecides) {
  Loop one, same, other;
  other.seed = 2;
  for (Loop* loop : {&one, &same, &other}) loop->Run(20'000);
  EXPECT_EQ(one.traced, same.traced);
  EXPECT_NE(one.traced, other.traced);
}

TEST(TraceWindowsTest, AChangeOfTheStepsTimeIsLookedAt) {
  for (const double later : {2.0, 0.5}) {
    int in_time = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Loop loop;
      loop.seed = seed;
      loop.step_of = [&](int64_t step) { return step < 4000 ? 5e6 : 5e6 * later; };
      loop.Run(4400);
      bool any = false;
      for (size_t step = 4000; step < 4400; ++step) any |= loop.traced[step];
      in_time += any;
    }
    EXPECT_GE(in_time, 18) << later;
  }
}

TEST(TraceWindowsTest, OneLongStepIsNoChange) {
  Loop plain, loop;
  loop.step_of = [](int64_t step) { return step == 4000 ? 1e9 : 5e6; };
  loop.Run(4050);
  plain.Run(4050);
  EXPECT_EQ(loop.windows, plain.windows);
}

TEST(TraceWindowsTest, WhatIsExpectedIsTraced) {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Loop loop;
    loop.seed = seed;
    loop.cost_ns = 500e3;
    loop.kinds_of = [](int64_t step) { return step % 700 == 699 ? 2u : 0u; };  // a validation
    loop.Run(5000);
    int traced = 0;
    for (size_t step = 699; step < loop.traced.size(); step += 700) traced += loop.traced[step];
    seen += traced >= TraceWindows::kTracedOfKind;
  }
  EXPECT_GE(seen, 16);
}

TEST(TraceWindowsTest, TheRestIsMeasuredBetweenWindows) {
  Loop loop;
  loop.lean_ns = 0.002 * loop.step_ns;
  loop.Run(20'000);
  EXPECT_NEAR(loop.lean_rate, 0.002, 0.0002);
  EXPECT_LE(loop.share(), kShare * 1.3);
}

TEST(TraceWindowsTest, AgainAfterARest) {
  TraceWindows windows(kShare, 1, 0, 0);
  windows.Look(kSecond, 200, 100'000'000);
  ASSERT_EQ(windows.due(), 201);
  windows.Switched(kSecond + 5'000'000, 201);
  EXPECT_FALSE(windows.tracing());
  windows.Restart(9 * kSecond, 2000, 100'000'000);
  EXPECT_TRUE(windows.tracing());
  EXPECT_EQ(windows.due(), SafePoints::kNever);
  windows.Look(10 * kSecond, 2200, 200'000'000);
  EXPECT_EQ(windows.due(), 2201);
}

}  // namespace
}  // namespace trainperf
