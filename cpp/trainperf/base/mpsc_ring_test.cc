#include "trainperf/base/mpsc_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace trainperf {
namespace {

TEST(MpscRing, KeepsOrder) {
  MpscRing<int> ring(4);
  EXPECT_TRUE(ring.TryPush(1));
  EXPECT_TRUE(ring.TryPush(2));
  std::vector<int> seen;
  EXPECT_TRUE(ring.Drain([&](int value) { seen.push_back(value); }));
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
  EXPECT_TRUE(ring.Drain([](int) { FAIL(); }));
}

TEST(MpscRing, CountsWhatItCannotTake) {
  MpscRing<int> ring(3);  // rounded up to 4
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.TryPush(i));
    EXPECT_FALSE(ring.TryPush(4));
    EXPECT_EQ(ring.dropped(), static_cast<uint64_t>(round) + 1);
    int count = 0;
    ring.Drain([&](int) { ++count; });
    EXPECT_EQ(count, 4);
  }
}

TEST(MpscRing, WhatIsPushedMeanwhileWaitsForTheNextTime) {
  MpscRing<int> ring(1);  // two, at least
  EXPECT_TRUE(ring.TryPush(0));
  std::vector<int> seen;
  EXPECT_TRUE(ring.Drain([&](int value) {
    seen.push_back(value);
    EXPECT_TRUE(ring.TryPush(value + 1));
  }));
  EXPECT_EQ(seen, (std::vector<int>{0}));
  EXPECT_TRUE(ring.TryPush(2));
  EXPECT_FALSE(ring.TryPush(3));
  EXPECT_TRUE(ring.Drain([&](int value) { seen.push_back(value); }));
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

// Run under TSan: everything pushed is either seen once, in its producer's order, or counted as dropped.
TEST(MpscRing, LosesNothingUncounted) {
  constexpr int kProducers = 3, kPushes = 100'000;
  MpscRing<int> ring(256);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kPushes; ++i) ring.TryPush(p * kPushes + i);
    });
  }
  std::vector<int> last(kProducers, -1);
  uint64_t seen = 0;
  const auto visit = [&](int value) {
    EXPECT_GT(value % kPushes, last[static_cast<size_t>(value / kPushes)]);
    last[static_cast<size_t>(value / kPushes)] = value % kPushes;
    ++seen;
  };
  while (seen + ring.dropped() < uint64_t{kProducers} * kPushes) ring.Drain(visit);
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(ring.Drain(visit));
  EXPECT_EQ(seen + ring.dropped(), uint64_t{kProducers} * kPushes);
}

}  // namespace
}  // namespace trainperf
