#include "trainperf/probe/beside_signs.h"

#include <map>

#include "gtest/gtest.h"
#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

// A sleeper whose waits of 20 ms end at 20, 40, ...; looks every 4 ms. `other_cpu` is the other's CPU time then.
template <typename Cpu>
std::map<BesideSign, int> Looks(Cpu&& other_cpu) {
  BesideSigns signs;
  std::map<BesideSign, int> seen;
  for (int64_t at_ms = 2; at_ms < 402; at_ms += 4) {
    ++seen[signs.Look(5, other_cpu(at_ms), at_ms / 20 * 50 * kUs, at_ms * kMs)];
  }
  return seen;
}

TEST(BesideSigns, WhoRunsAtTheEndOfEachWaitWoke) {
  const auto seen = Looks([](int64_t ms) { return ms / 20 * 20 * kUs; });
  EXPECT_GE(seen.at(BesideSign::kWoke), 95);
  EXPECT_EQ(seen.size(), 2u);  // of the first wait nothing is known
}

TEST(BesideSigns, WhoNeverRunsIsStill) {
  const auto seen = Looks([](int64_t) { return 7 * kUs; });
  EXPECT_GE(seen.at(BesideSign::kStill), 95);
  EXPECT_EQ(seen.size(), 2u);
}

TEST(BesideSigns, WhoRunsNowAndThenStirs) {
  const auto seen = Looks([](int64_t ms) { return ms / 7 * 20 * kUs; });
  EXPECT_GT(seen.at(BesideSign::kStirred), 50);
}

TEST(BesideSigns, WhoIsOnCpuWorks) {
  const auto seen = Looks([](int64_t ms) { return ms * kMs / 5; });
  EXPECT_EQ(seen.at(BesideSign::kWorks), 99);
}

TEST(BesideSigns, AThreadOfWhichTheClockCannotBeReadIsNotKnown) {
  EXPECT_EQ(Looks([](int64_t) { return -1; }).at(BesideSign::kNotKnown), 100);
}

TEST(BesideSigns, AsManyThreadsAsItKeepsAreKnownApart) {
  BesideSigns signs;
  for (int64_t round = 0; round < 4; ++round) {
    for (ThreadId thread = 1; thread <= BesideSigns::kMaxThreads; ++thread) {
      const bool runs = thread % 2 == 0;
      const BesideSign sign = signs.Look(thread, runs ? round * kUs : 0, round, (round * 100 + thread) * kMs);
      EXPECT_EQ(sign, round == 0 ? BesideSign::kNotKnown : runs ? BesideSign::kWoke : BesideSign::kStill);
    }
  }
}

TEST(BesideSigns, MoreThreadsThanItKeepsAreNotMixedUp) {
  BesideSigns signs;
  for (int64_t round = 0; round < 4; ++round) {
    for (ThreadId thread = 1; thread <= 2 * BesideSigns::kMaxThreads; ++thread) {
      const BesideSign sign = signs.Look(thread, thread * kMs, round, (round * 100 + thread) * kMs);
      EXPECT_EQ(sign, BesideSign::kNotKnown);
    }
  }
}

}  // namespace
}  // namespace trainperf
