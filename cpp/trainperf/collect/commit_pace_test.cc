#include "trainperf/collect/commit_pace.h"

#include <gtest/gtest.h>

namespace trainperf {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStart = 100 * kSecond;

TEST(CommitPaceTest, TheFirstComesAfterASecond) {
  const CommitPace pace(kStart);
  EXPECT_FALSE(pace.Due(kStart + kSecond - 1));
  EXPECT_TRUE(pace.Due(kStart + kSecond));
}

TEST(CommitPaceTest, OneThatCostsLittleIsFollowedByTheNextAfterASecond) {
  CommitPace pace(kStart);
  pace.Done(kStart, 200'000);
  EXPECT_FALSE(pace.Due(kStart + kSecond - 1));
  EXPECT_TRUE(pace.Due(kStart + kSecond));
}

TEST(CommitPaceTest, CommitsTakeAThousandthOfTheTime) {
  CommitPace pace(kStart);
  pace.Done(kStart, 3'000'000);
  EXPECT_FALSE(pace.Due(kStart + 3 * kSecond - 1));
  EXPECT_TRUE(pace.Due(kStart + 3 * kSecond));
}

TEST(CommitPaceTest, NoMoreThanSoMuchIsLostWhateverACommitCosts) {
  CommitPace pace(kStart);
  pace.Done(kStart, 400'000'000);
  EXPECT_TRUE(pace.Due(kStart + CommitPace::kLongestNs));
}

}  // namespace
}  // namespace trainperf
