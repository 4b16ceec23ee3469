#include "trainperf/cpython/line_table.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace trainperf {
namespace {

int32_t Line(LineTableFormat format, const std::vector<uint8_t>& table, int32_t first, int64_t offset) {
  return LineAt(format, table.data(), table.size(), first, offset);
}

TEST(LineTable, Pairs) {
  // Objects/lnotab_notes.txt: 0-6 line 5, 6-50 line 6, 50-350 line 6 + 1 (in two pieces), 350-360 none, 360-376 line 5
  const std::vector<uint8_t> table = {6, 0, 44, 1, 254, 1, 46, 0, 10, 0x80, 16, 0xFE};
  const auto at = [&](int64_t offset) { return Line(LineTableFormat::kPairs, table, 5, offset); };
  EXPECT_EQ(at(0), 5);
  EXPECT_EQ(at(5), 5);
  EXPECT_EQ(at(6), 6);
  EXPECT_EQ(at(49), 6);
  EXPECT_EQ(at(50), 7);
  EXPECT_EQ(at(349), 7);
  EXPECT_EQ(at(350), -1);
  EXPECT_EQ(at(360), 5);
  EXPECT_EQ(at(376), -1);
  EXPECT_EQ(at(-2), -1);
}

TEST(LineTable, Locations) {
  const std::vector<uint8_t> table = {
      0x80 | (0 << 3) | 1,  0x12,                     // short form, 2 units, same line
      0x80 | (11 << 3) | 0, 4,        9,              // one line further, 1 unit
      0x80 | (12 << 3) | 3, 4,        9,              // two lines further, 4 units
      0x80 | (15 << 3) | 0,                           // no line, 1 unit
      0x80 | (13 << 3) | 0, 0x40 | 8, 3,              // no columns: +100 (200 = 8 + 3 * 64), 1 unit
      0x80 | (14 << 3) | 0, 7,        2, 0x41, 1, 5,  // long form: -3, 1 unit
  };
  const auto at = [&](int64_t unit) { return Line(LineTableFormat::kLocations, table, 10, 2 * unit); };
  EXPECT_EQ(at(0), 10);
  EXPECT_EQ(at(1), 10);
  EXPECT_EQ(at(2), 11);
  EXPECT_EQ(at(3), 13);
  EXPECT_EQ(at(6), 13);
  EXPECT_EQ(at(7), -1);
  EXPECT_EQ(at(8), 113);
  EXPECT_EQ(at(9), 110);
  EXPECT_EQ(at(10), -1);
  EXPECT_EQ(at(-1), -1);
}

// Tables are copied while their owner may free them: any bytes must be read without running over their end.
TEST(LineTable, AnyBytesAreReadWithinTheirEnd) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> table(random() % 24);
    for (uint8_t& byte : table) byte = static_cast<uint8_t>(random());
    for (const auto format : {LineTableFormat::kPairs, LineTableFormat::kLocations}) {
      EXPECT_EQ(Line(format, table, 1, int64_t{1} << 40), -1);
    }
  }
}

}  // namespace
}  // namespace trainperf
