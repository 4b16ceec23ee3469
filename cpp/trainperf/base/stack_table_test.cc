#include "trainperf/base/stack_table.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainperf {
namespace {

class StackTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    table_.Init();
    table_.Reset();
  }
  StackTable& table_ = StackTable::Get();

  std::vector<std::string> FunctionsOf(StackId id) {
    std::vector<std::string> names;
    for (; id != 0; id = table_.node(id).parent) names.emplace_back(table_.site(table_.node(id).site).function);
    return names;
  }
};

TEST_F(StackTableTest, EqualSitesAndStacksGetEqualIds) {
  const SiteId a = table_.InternSite("a.py", "f", 3);
  EXPECT_EQ(table_.InternSite(std::string("a.py"), std::string("f"), 3), a);
  EXPECT_NE(table_.InternSite("a.py", "f", 4), a);
  EXPECT_NE(table_.InternSite("b.py", "f", 3), a);
  EXPECT_NE(table_.InternSite("f", "a.py", 3), a);
  const SiteId b = table_.InternSite("a.py", "g", 9);
  const SiteId inner_first[] = {a, b};
  const StackId stack = table_.Intern(inner_first, 2);
  EXPECT_EQ(table_.Intern(inner_first, 2), stack);
  EXPECT_EQ(table_.site(a).file, "a.py");
  EXPECT_EQ(table_.site(a).line, 3);
  EXPECT_THAT(FunctionsOf(stack), ::testing::ElementsAre("f", "g"));
}

TEST_F(StackTableTest, StacksShareTheirCallers) {
  const SiteId main = table_.InternSite("a.py", "main", 1);
  const SiteId f = table_.InternSite("a.py", "f", 2);
  const SiteId g = table_.InternSite("a.py", "g", 3);
  const SiteId one[] = {f, main};
  const SiteId two[] = {g, main};
  const StackId first = table_.Intern(one, 2);
  const StackId second = table_.Intern(two, 2);
  EXPECT_EQ(table_.node(first).parent, table_.node(second).parent);
  EXPECT_EQ(table_.size(), 3u);
}

TEST_F(StackTableTest, BelowAKnownCaller) {
  const SiteId main = table_.InternSite("a.py", "main", 1);
  const SiteId f = table_.InternSite("a.py", "f", 2);
  const SiteId g = table_.InternSite("a.py", "g", 3);
  const SiteId whole[] = {g, f, main};
  StackId each[3];
  const StackId stack = table_.Intern(whole, 3, 0, each);
  EXPECT_EQ(each[0], stack);
  EXPECT_THAT(FunctionsOf(each[1]), ::testing::ElementsAre("f", "main"));
  EXPECT_EQ(table_.Intern(whole, 1, each[1], nullptr), stack);
  EXPECT_EQ(table_.Intern(whole, 0, each[1], nullptr), each[1]);
  const SiteId cut[] = {g, 0, main};
  EXPECT_EQ(table_.Intern(cut, 3, 0, each), each[2]);
  EXPECT_EQ(each[0], 0u);
  EXPECT_EQ(each[1], 0u);
}

TEST_F(StackTableTest, EmptyAndUnknownGiveNone) {
  EXPECT_EQ(table_.Intern(nullptr, 0), 0u);
  EXPECT_EQ(table_.refused(), 0u);
  const SiteId known = table_.InternSite("a.py", "main", 1);
  const SiteId cut[] = {0, known};
  EXPECT_THAT(FunctionsOf(table_.Intern(cut, 2)), ::testing::ElementsAre("main"));
  EXPECT_EQ(table_.refused(), 1u);
}

TEST_F(StackTableTest, LongNamesAreCut) {
  const std::string file = "/begin/" + std::string(3 * StackTable::kMaxName, 'x') + "/end.py";
  const Site site = table_.site(table_.InternSite(file, "begin" + std::string(3 * StackTable::kMaxName, 'y'), 1));
  EXPECT_EQ(site.file.size(), StackTable::kMaxName);
  EXPECT_EQ(site.file.substr(site.file.size() - 7), "/end.py");
  EXPECT_EQ(site.function.size(), StackTable::kMaxName);
  EXPECT_EQ(site.function.substr(0, 5), "begin");
}

TEST_F(StackTableTest, FullOfStacksCutsAtTheDeepestKnown) {
  constexpr int kSites = 500;
  std::vector<SiteId> sites;
  for (int line = 0; line < kSites; ++line) sites.push_back(table_.InternSite("a.py", "f", line));
  for (int i = 0; i < kSites * kSites && table_.refused() == 0; ++i) {
    const SiteId stack[] = {sites[i % kSites], sites[i / kSites]};
    table_.Intern(stack, 2);
  }
  const uint32_t full = table_.size();
  EXPECT_GT(full, 100'000u);
  EXPECT_EQ(table_.refused(), 1u);
  const StackId root = table_.Intern(&sites[0], 1);
  const SiteId fresh[] = {table_.InternSite("a.py", "never seen", 77), sites[0]};
  EXPECT_EQ(table_.Intern(fresh, 2), root);
  EXPECT_EQ(table_.size(), full);
  EXPECT_EQ(table_.refused(), 2u);
}

TEST_F(StackTableTest, FullOfSitesGivesNone) {
  int32_t line = 0;
  while (table_.InternSite("a.py", "f", ++line) != 0) ASSERT_LT(line, 1 << 20);
  EXPECT_EQ(table_.site_count(), static_cast<uint32_t>(line - 1));
  EXPECT_EQ(table_.refused(), 1u);
  EXPECT_EQ(table_.InternSite("a.py", "f", 1), 1u);  // what is there is still found
}

TEST_F(StackTableTest, ResetEmpties) {
  const uint64_t generation = table_.generation();
  const SiteId site = table_.InternSite("a.py", "f", 1);
  table_.Intern(&site, 1);
  table_.Reset();
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.site_count(), 0u);
  EXPECT_GT(table_.generation(), generation);
  EXPECT_EQ(table_.site(table_.InternSite("b.py", "g", 2)).file, "b.py");
}

// Two writers that give up rather than wait, and a reader: what size() counts is complete.
TEST_F(StackTableTest, WritersAndReaderAtOnce) {
  std::atomic<int> writing{2};
  auto write = [&](int seed) {
    for (int i = 0; i < 20000; ++i) {
      const SiteId a = table_.InternSite("a.py", "f", (i * 7 + seed) % 500);
      const SiteId b = table_.InternSite("b.py", "g", i % 100);
      if (a == 0 || b == 0) continue;
      const SiteId stack[] = {a, b};
      table_.Intern(stack, 2);
    }
    writing.fetch_sub(1);
  };
  std::thread one(write, 1);
  std::thread two(write, 2);
  uint32_t seen = 0;
  while (writing.load() > 0 || seen < table_.size()) {
    for (const uint32_t size = table_.size(); seen < size;) {
      const StackTable::Node node = table_.node(++seen);
      ASSERT_LT(node.parent, seen);
      const Site site = table_.site(node.site);
      ASSERT_EQ(site.function, site.file == "a.py" ? "f" : "g");
    }
  }
  one.join();
  two.join();
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace trainperf
