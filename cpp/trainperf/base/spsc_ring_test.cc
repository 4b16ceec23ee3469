#include "trainperf/base/spsc_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace trainperf {
namespace {

TEST(SpscRing, KeepsOrder) {
  SpscRing<int> ring(4);
  EXPECT_TRUE(ring.TryPush(1));
  EXPECT_TRUE(ring.TryPush(2));
  std::vector<int> seen;
  EXPECT_EQ(ring.Drain([&](int value) { seen.push_back(value); }), 2u);
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
  EXPECT_EQ(ring.Drain([](int) { FAIL(); }), 0u);
}

TEST(SpscRing, CountsWhatItCannotTake) {
  SpscRing<int> ring(3);  // rounded up to 4
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.TryPush(i));
  EXPECT_FALSE(ring.TryPush(4));
  EXPECT_FALSE(ring.TryPush(5));
  EXPECT_EQ(ring.dropped(), 2u);
  ring.Drain([](int) {});
  EXPECT_TRUE(ring.TryPush(6));
}

// Run under TSan: everything pushed is either seen once, in order, or counted as dropped.
TEST(SpscRing, LosesNothingUncounted) {
  constexpr int kPushes = 200'000;
  SpscRing<int> ring(256);
  std::thread producer([&] {
    for (int i = 0; i < kPushes; ++i) ring.TryPush(i);
  });
  int last = -1;
  uint64_t seen = 0;
  const auto visit = [&](int value) {
    EXPECT_GT(value, last);
    last = value;
    ++seen;
  };
  while (seen + ring.dropped() < kPushes) ring.Drain(visit);
  producer.join();
  ring.Drain(visit);
  EXPECT_EQ(seen + ring.dropped(), static_cast<uint64_t>(kPushes));
}

}  // namespace
}  // namespace trainperf
