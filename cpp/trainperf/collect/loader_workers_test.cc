#include "trainperf/collect/loader_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainperf/base/clock.h"
#include "trainperf/probe/host.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

using ::testing::ElementsAre;

int32_t PidOfTheDead() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(LoaderWorkers, AreReadSoonAfterTheirStartThenOnceASecondUntilTheyAreGone) {
  const TestFolder folder;
  auto writer = RunWriter::Create(folder / "a.tpr", {});
  ASSERT_TRUE(writer.ok());
  LoaderWorkers workers;
  workers.Watch(7, getpid(), 0);
  workers.Watch(7, PidOfTheDead(), 0);
  for (int64_t at_ns = 0; at_ns <= 3000 * kMs; at_ns += 50 * kMs) workers.Read(at_ns, false, writer->get());
  workers.Read(3010 * kMs, true, writer->get());
  ASSERT_TRUE((*writer)->Finish("normally").ok());
  // 0, 100, 300, 700, 1500, 2500 ms, and at the end.
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT loader, first_ns, last_ns / 1000000, readings FROM worker"),
              ElementsAre("7|0|3010|7"));
}

TEST(LoaderWorkers, AreReadAnewFromWhenTheyAreAtWork) {
  const TestFolder folder;
  auto writer = RunWriter::Create(folder / "a.tpr", {});
  ASSERT_TRUE(writer.ok());
  LoaderWorkers workers;
  workers.Watch(7, getpid(), 0);
  workers.Read(1 * kMs, false, writer->get());
  workers.AtWork(8, 50 * kMs);  // another loader's
  workers.Read(50 * kMs, false, writer->get());
  workers.AtWork(7, 60 * kMs);
  for (int64_t at_ns = 60 * kMs; at_ns <= 200 * kMs; at_ns += 10 * kMs) workers.Read(at_ns, false, writer->get());
  ASSERT_TRUE((*writer)->Finish("normally").ok());
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT first_ns, at_work_ns, last_ns, readings FROM worker"),
              ElementsAre("1000000|60000000|160000000|3"));
  EXPECT_THAT(Query(folder / "a.tpr", "SELECT readings FROM worker_state"), ElementsAre("2"));
}

TEST(LoaderWorkers, AreLookedAtAtEachWakeUpOnceTheyAreAtWork) {
  const TestFolder folder;
  auto writer = RunWriter::Create(folder / "a.tpr", {});
  ASSERT_TRUE(writer.ok());
  LoaderWorkers workers;
  workers.Watch(7, getpid(), 0);
  workers.Read(1 * kMs, false, writer->get());
  workers.AtWork(7, 50 * kMs);
  for (int64_t at_ns = 50 * kMs; at_ns <= 1000 * kMs; at_ns += 50 * kMs) workers.Read(at_ns, false, writer->get());
  ASSERT_TRUE((*writer)->Finish("normally").ok());
  const auto looks = Query(folder / "a.tpr", "SELECT SUM(looks) FROM worker_wait WHERE shared = 0");
  if (!ReadProcessWait(getpid()).known) GTEST_SKIP() << "/proc/PID/syscall cannot be read";
  EXPECT_THAT(looks, ElementsAre("20"));
}

}  // namespace
}  // namespace trainperf
