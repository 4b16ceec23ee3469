#include "trainperf/probe/denormals.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace trainperf {
namespace {

template <typename Float>
void CountsThoseBelowTheLeastNormalNumber(FloatKind kind) {
  const Float tiny = std::numeric_limits<Float>::min(), denormal = std::numeric_limits<Float>::denorm_min();
  const std::vector<Float> numbers = {0, -Float{0}, 1, -1, tiny, denormal, -denormal, tiny - denormal};
  const FloatCounts counts = CountFloats(numbers.data(), numbers.size(), kind, 1);
  EXPECT_EQ(counts.looked_at, 8U);
  EXPECT_EQ(counts.denormal, 3U);
  EXPECT_TRUE(counts.finite);
  for (const Float odd : {std::numeric_limits<Float>::infinity(), std::numeric_limits<Float>::quiet_NaN()}) {
    const FloatCounts one = CountFloats(&odd, 1, kind, 1);
    EXPECT_EQ(one.denormal, 0U);
    EXPECT_FALSE(one.finite);
  }
}

TEST(Denormals, Float) { CountsThoseBelowTheLeastNormalNumber<float>(FloatKind::kFloat32); }
TEST(Denormals, Double) { CountsThoseBelowTheLeastNormalNumber<double>(FloatKind::kFloat64); }

TEST(Denormals, Bfloat16) {
  const std::vector<uint16_t> numbers = {0x0000, 0x8000, 0x3F80, 0x0080, 0x0001, 0x807F};
  const FloatCounts counts = CountFloats(numbers.data(), numbers.size(), FloatKind::kBfloat16, 1);
  EXPECT_EQ(counts.denormal, 2U);
  EXPECT_TRUE(counts.finite);
  const uint16_t infinity = 0x7F80;
  EXPECT_FALSE(CountFloats(&infinity, 1, FloatKind::kBfloat16, 1).finite);
}

TEST(Denormals, BlocksLieOverAllOfIt) {
  std::vector<float> numbers(100'003);
  const auto counts = [&numbers](size_t blocks) {
    return CountFloats(numbers.data(), numbers.size(), FloatKind::kFloat32, blocks);
  };
  for (size_t i = 0; i < 1000; ++i) numbers[i] = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(counts(100).looked_at, 100 * kFloatBlock);
  EXPECT_EQ(counts(100).denormal, kFloatBlock);  // the first, as the second begins at 1009
  EXPECT_NEAR(static_cast<double>(counts(1000).denormal) / (1000 * kFloatBlock), 0.01, 0.001);
  numbers.assign(numbers.size(), 0);
  numbers.back() = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(counts(2).denormal, 1U);
  EXPECT_EQ(counts(1).denormal, 0U);
  EXPECT_EQ(counts(7000).looked_at, numbers.size());
  EXPECT_EQ(CountFloats(numbers.data(), 0, FloatKind::kFloat32, 4).looked_at, 0U);
}

}  // namespace
}  // namespace trainperf
