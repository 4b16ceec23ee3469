#include "trainperf/collect/cpu_rooms.h"

#include <gtest/gtest.h>

#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

TEST(CpuRooms, KeepsChangesOnly) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  CpuRooms rooms;
  rooms.Add(1, 0, {4, "0-3"});
  rooms.Add(2, 0, {4, "0-3"});
  rooms.Add(3, 77, {4, "0-3"});
  rooms.Add(4, 0, {1, "2"});
  rooms.Add(5, 0, {-1, ""});  // it has ended
  rooms.SetQuota(6, 1500);
  rooms.SetQuota(7, 1500);
  rooms.Write(writer.get());
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT value FROM meta WHERE key = 'cpu_room'"),
            R"([[1, 0, 4, "0-3", -1], [3, 77, 4, "0-3", -1], [4, 0, 1, "2", -1], [6, 0, 1, "2", 1500]])");
}

}  // namespace
}  // namespace trainperf
