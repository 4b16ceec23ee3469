#include "trainperf/trace/name_cache.h"

#include <string>

#include "gtest/gtest.h"

namespace trainperf {
namespace {

TEST(NameCacheTest, KindsAndNamesAreToldApart) {
  NameCache<int> cache;
  EXPECT_EQ(cache.Find(1, ""), nullptr);
  cache.Put(1, "", 5);
  EXPECT_EQ(cache.Find(2, ""), nullptr);
  cache.Put(2, "", 6);
  EXPECT_EQ(*cache.Find(1, ""), 5);
  EXPECT_EQ(*cache.Find(2, ""), 6);
  EXPECT_EQ(cache.Find(1, std::string(1, '\0')), nullptr);  // a zero is not nothing
}

// It may forget, but never mistakes one name for another.
TEST(NameCacheTest, OfMoreNamesThanItHoldsNoneIsTakenForAnother) {
  NameCache<int> cache;
  int known = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20'000; ++i) {
      const std::string name = std::string(static_cast<size_t>(i % 40), 'x') + std::to_string(i);
      if (const int* const found = cache.Find(3, name)) {
        ASSERT_EQ(*found, i);
        ++known;
      } else {
        cache.Put(3, name, i);
        ASSERT_EQ(*cache.Find(3, name), i);
      }
    }
  }
  for (int i = 0; i < 500; ++i) {
    cache.Find(4, std::to_string(i));
    cache.Put(4, std::to_string(i), i);
  }
  for (int i = 0; i < 500; ++i) known += cache.Find(4, std::to_string(i)) != nullptr;
  EXPECT_GT(known, 450);  // a few hundred names, as of a trace, stay
}

}  // namespace
}  // namespace trainperf
