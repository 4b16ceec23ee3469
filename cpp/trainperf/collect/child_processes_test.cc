#include "trainperf/collect/child_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/host.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Forked {
 public:
  explicit Forked(bool computes) : pid_(fork()) {
    if (pid_ != 0) return;
    while (!computes) pause();
    for (;;) {
    }
  }
  ~Forked() { End(); }
  void End() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // It has ended, and nobody has waited for it.
  void Kill() const {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void Stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  int32_t pid() const { return pid_; }
  // Until it has used so much CPU time.
  void Await(int64_t cpu_ns) const {
    while (ReadProcess(pid_).cpu_ns < cpu_ns) usleep(1000);
  }

 private:
  pid_t pid_;
};

class ChildProcessesTest : public ::testing::Test {
 protected:
  void Read(const std::vector<int32_t>& workers = {}) {
    now_ns_ += 10'000 * kMs;
    children_.Read(now_ns_, true, workers, writer_.get());  // due or not: the last look may have taken long
  }
  std::vector<std::string> Children(const char* columns) {
    EXPECT_TRUE(writer_->Finish("normally").ok());
    return Query(folder_ / "a.tpr", absl::StrCat("SELECT ", columns, " FROM child ORDER BY id").c_str());
  }

  const TestFolder folder_;
  std::unique_ptr<RunWriter> writer_ = *RunWriter::Create(folder_ / "a.tpr", {});
  ChildProcesses children_;
  int64_t now_ns_ = 0;
};

TEST_F(ChildProcessesTest, AreWrittenOnceTheyComputeOrHaveAName) {
  Read();
  const Forked computes(true), waits(false), named(false);
  computes.Await(600 * kMs);
  Read();
  EXPECT_THAT(children_.Unnamed(), ElementsAre(computes.pid(), waits.pid(), named.pid()));
  children_.Name(named.pid(), "ForkPoolWorker-1");
  Read();
  EXPECT_THAT(children_.Unnamed(), ElementsAre(computes.pid(), waits.pid()));
  EXPECT_THAT(Children("pid, name, cpu_ns >= 600000000, command"),
              ElementsAre(absl::StrCat(computes.pid(), "||1|trainperf_collect_test"),
                          absl::StrCat(named.pid(), "|ForkPoolWorker-1|0|trainperf_collect_test")));
}

TEST_F(ChildProcessesTest, AreNotWhatTheLoadersWorkersAre) {
  const Forked worker(true);
  Read({worker.pid()});
  worker.Await(600 * kMs);
  Read({worker.pid()});
  EXPECT_THAT(children_.Unnamed(), IsEmpty());
  EXPECT_THAT(Children("pid"), IsEmpty());
}

TEST_F(ChildProcessesTest, ThatWereThereBeforeCountFromTheFirstLook) {
  const Forked before(true);
  before.Await(300 * kMs);
  Read();
  before.Await(1000 * kMs);
  Read();
  EXPECT_THAT(Children("cpu_ns >= 500000000 AND cpu_ns < 900000000"), ElementsAre("1"));
}

TEST_F(ChildProcessesTest, AreNotMultiprocessingsTracker) {
  const pid_t tracker = fork();
  if (tracker == 0) {
    // A shell, by its arguments a Python: it complains of the first command and goes on with the second.
    close(STDERR_FILENO);
    execl("/bin/sh", "python3", "-c", "from multiprocessing.resource_tracker import main; while :; do :; done",
          nullptr);
    _exit(1);
  }
  Read();
  while (ReadProcess(tracker).cpu_ns < 600 * kMs) usleep(1000);
  Read();
  Read();
  kill(tracker, SIGKILL);
  waitpid(tracker, nullptr, 0);
  EXPECT_THAT(Children("command"), IsEmpty());
}

TEST_F(ChildProcessesTest, ThatEndedUsedCpuTimeToTheEnd) {
  Read();
  const Forked ended(true);
  ended.Await(200 * kMs);
  Read();
  ended.Await(1000 * kMs);
  ended.Kill();
  Read();
  EXPECT_THAT(Children("cpu_ns >= 1000000000"), ElementsAre("1"));
}

TEST_F(ChildProcessesTest, AreLookedAtOnceMoreAtTheEnd) {
  Read();
  const Forked computes(true);
  computes.Await(600 * kMs);
  children_.Read(now_ns_ + 1, false, {}, writer_.get());  // not due yet
  EXPECT_THAT(children_.Unnamed(), IsEmpty());
  children_.Read(now_ns_ + 2, true, {}, writer_.get());
  EXPECT_THAT(Children("pid"), ElementsAre(absl::StrCat(computes.pid())));
}

TEST_F(ChildProcessesTest, MayBeStoppedOrEndAtAnyTime) {
  Read();
  Forked stopped(true), ended(true);
  stopped.Await(600 * kMs);
  ended.Await(600 * kMs);
  stopped.Stop();
  Read();
  ended.End();
  Read();
  EXPECT_THAT(children_.Unnamed(), ElementsAre(stopped.pid()));
  Read();
  EXPECT_THAT(Children("pid"), ElementsAre(absl::StrCat(stopped.pid()), ::testing::_));
}

}  // namespace
}  // namespace trainperf
