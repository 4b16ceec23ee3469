#include "trainperf/collect/thread_names.h"

#include <gmock/gmock.h>

namespace trainperf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ThreadNames, AreAskedForUntilTheyAreKnown) {
  ThreadTable& threads = ThreadTable::Get();
  threads.Reset();
  const ThreadId first = threads.FindOrAdd(101, 1);
  threads.FindOrAdd(0, 2);  // its native id is not known: nobody can be asked
  const ThreadId third = threads.FindOrAdd(103, 3);
  ThreadNames names;
  EXPECT_THAT(names.Unnamed(), ElementsAre(101, 103));
  EXPECT_THAT(names.Name(101), ElementsAre(first));
  EXPECT_THAT(names.Name(101), IsEmpty());  // it has one
  EXPECT_TRUE(names.named(first));
  EXPECT_FALSE(names.named(third));
  for (int i = 1; i < 20; ++i) EXPECT_THAT(names.Unnamed(), ElementsAre(103));
  EXPECT_THAT(names.Unnamed(), IsEmpty());  // it has none, it seems
}

}  // namespace
}  // namespace trainperf
