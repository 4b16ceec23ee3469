// Bad paths, full disks, forks and kills.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainperf/run/run_failure_test_util.h"
#include "trainperf/run/run_path.h"
#include "trainperf/run/run_test_util.h"
#include "trainperf/run/run_writer.h"

void* operator new(size_t size) {
  if (trainperf::NoMemory::Fails()) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trainperf {
namespace {

using ::testing::HasSubstr;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// A run that something befalls, a.tpr, and one of the same steps that nothing does.
class RunAndReference {
 public:
  explicit RunAndReference(const TestFolder& folder, const RunWriterOptions& options = {})
      : run_(Create(folder / "a.tpr", options)), reference_(Create(folder / "reference.tpr", options)) {}

  void Feed(int steps) {
    for (int i = 0; i < steps; ++i) {
      steps_.Feed(*run_);
      same_steps_.Feed(*reference_);
    }
  }
  RunWriter& run() { return *run_; }
  // Once that is finished, wherever it was saved: nothing was lost.
  void ExpectSame() {
    EXPECT_TRUE(reference_->Finish("normally").ok());
    EXPECT_EQ(Scalar(run_->path(), "PRAGMA integrity_check"), "ok");
    EXPECT_EQ(Dump(run_->path()), Dump(reference_->path()));
  }

 private:
  const std::unique_ptr<RunWriter> run_;
  const std::unique_ptr<RunWriter> reference_;
  RandomRun steps_{4};
  RandomRun same_steps_{4};
};

// Each part of the file has that many steps.
void ExpectWhole(const std::string& path, int64_t steps) {
  EXPECT_EQ(Scalar(path, "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(Number(path, "SELECT SUM(steps) FROM section"), steps);
  EXPECT_EQ(Number(path, "SELECT SUM(steps) FROM wall_histogram"), steps);
  EXPECT_EQ(Number(path, "SELECT SUM(wall_ns) FROM step"), Number(path, "SELECT SUM(ns) FROM phase_mechanism"));
}

TEST(RunFailureTest, RefusesBadPathsSayingTheMend) {
  TestFolder folder;
  ASSERT_TRUE(Create(folder / "a.tpr")->Finish("normally").ok());
  const auto refusal = [](const std::string& path, bool overwrite = false) {
    RunWriterOptions options;
    options.overwrite = overwrite;
    return RunWriter::Create(path, options).status();
  };
  EXPECT_EQ(refusal(folder / "a.tpr").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refusal(folder / "a.tpr").message()), HasSubstr("overwrite=True"));
  EXPECT_EQ(refusal(folder.path()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(folder.path(), true).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Exists(folder / "a.tpr"));
  EXPECT_EQ(refusal(folder / "no/such/a.tpr").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(refusal(folder / "no/such/a.tpr").message()), HasSubstr("make it first"));
  EXPECT_THAT(std::string(refusal("/proc/a.tpr").message()), HasSubstr("cannot be made in /proc: No such file"));
  EXPECT_EQ(refusal(folder / "a.tpr/b.tpr").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("/dev/null", true).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("/sys/a.tpr").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refusal(std::string("/tmp/a\0b", 8)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(folder / std::string(300, 'x')).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RunFailureTest, OverwritesWhenAsked) {
  TestFolder folder;
  auto first = Create(folder / "a.tpr");
  first->SetMeta("name", "first");
  ASSERT_TRUE(first->Finish("normally").ok());
  ASSERT_EQ(symlink("/nowhere/at/all", (folder / "link.tpr").c_str()), 0);
  RunWriterOptions options;
  options.overwrite = true;
  for (const std::string& path : {folder / "a.tpr", folder / "link.tpr"}) {
    auto second = Create(path, options);
    second->SetMeta("name", "second");
    ASSERT_TRUE(second->Finish("normally").ok());
    EXPECT_EQ(Scalar(path, "SELECT value FROM meta WHERE key = 'name'"), "second");
  }
}

TEST(RunFailureTest, WhatReplacesAPrivateFileIsPrivate) {
  TestFolder folder;
  const std::string path = folder / "a.tpr";
  RunWriterOptions options;
  options.overwrite = true;
  for (const mode_t mode : {0600, 0640, 0664}) {
    ASSERT_TRUE(Create(path, options)->Finish("normally").ok());
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(Create(path, options)->Finish("normally").ok());
    struct stat found;
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, mode);
  }
}

TEST(RunFailureTest, ALogLeftByAnEarlierRunIsNotTakenForOurs) {
  TestFolder folder;
  std::FILE* stale = std::fopen((folder / "a.tpr-wal").c_str(), "w");
  std::fputs("stale", stale);
  std::fclose(stale);
  ASSERT_TRUE(Create(folder / "a.tpr")->Finish("normally").ok());
  EXPECT_FALSE(Exists(folder / "a.tpr-wal"));
}

TEST(RunFailureTest, LeavesOneFile) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  RandomRun run(1);
  for (int i = 0; i < 100; ++i) run.Feed(*writer);
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(Exists(folder / "a.tpr-wal"));
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_FALSE(Exists(folder / "a.tpr-wal"));
  EXPECT_FALSE(Exists(folder / "a.tpr-shm"));
  EXPECT_FALSE(Exists(folder / "a.tpr-journal"));
  EXPECT_EQ(Scalar(folder / "a.tpr", "PRAGMA journal_mode"), "delete");
}

// Without a log, and yet the same: its rows, and what happens when the disk is full.
TEST(RunFailureTest, ADisposableRunIsTheSame) {
  TestFolder folder;
  const auto write = [&](const std::string& name, bool disposable, rlim_t limit) {
    RunWriterOptions options;
    options.disposable = disposable;
    auto writer = Create(folder / name, options);
    RandomRun run(3);
    for (int i = 0; i < 3000; ++i) run.Feed(*writer);
    const FileSizeLimit full(limit);
    return std::make_pair(writer->Finish("normally"), writer->path());
  };
  ASSERT_TRUE(write("log.tpr", false, RLIM_INFINITY).first.ok());
  ASSERT_TRUE(write("none.tpr", true, RLIM_INFINITY).first.ok());
  EXPECT_EQ(Dump(folder / "none.tpr"), Dump(folder / "log.tpr"));
  EXPECT_FALSE(Exists(folder / "none.tpr-wal"));
  EXPECT_FALSE(Exists(folder / "none.tpr-journal"));
  const auto [status, path] = write("full.tpr", true, 100'000);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nor could the run be saved elsewhere"));
  EXPECT_EQ(Scalar(path, "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM meta"), 0);
}

TEST(RunFailureTest, AWriterThatIsDroppedKeepsWhatWasCommitted) {
  TestFolder folder;
  {
    auto writer = Create(folder / "a.tpr");
    RandomRun run(1);
    for (int i = 0; i < 100; ++i) run.Feed(*writer);
    ASSERT_TRUE(writer->Commit().ok());
  }
  EXPECT_EQ(Number(folder / "a.tpr", "SELECT COUNT(*) FROM step"), 100);
  EXPECT_EQ(Number(folder / "a.tpr", "SELECT COUNT(*) FROM meta WHERE key = 'ended'"), 0);
}

TEST(RunFailureTest, FinishedMeansFinished) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_TRUE(writer->Finish("exception").ok());
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Scalar(folder / "a.tpr", "SELECT value FROM meta"), "normally");
}

TEST(RunFailureTest, NoPathMakesAPrivateFile) {
  auto writer = Create("");
  const std::string path = writer->path();
  ASSERT_TRUE(writer->Finish("normally").ok());
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  unlink(path.c_str());
}

TEST(RunFailureTest, AFullDiskLosesNothing) {
  TestFolder folder;
  RunWriterOptions options;
  options.max_step_rows = 256;
  RunAndReference both(folder, options);
  int failed = 0;
  for (int round = 0; round < 40; ++round) {
    both.Feed(50);
    if (round % 4 == 3) {
      ASSERT_TRUE(both.run().Commit().ok());
    } else {
      FileSizeLimit limit(round % 4 == 0 ? 4096 : 64 * 1024);
      const absl::Status status = both.run().Commit();
      failed += !status.ok();
    }
  }
  EXPECT_GE(failed, 20);
  ASSERT_TRUE(both.run().Finish("normally").ok());
  EXPECT_EQ(both.run().path(), folder / "a.tpr");
  both.ExpectSame();
}

TEST(RunFailureTest, WhatIsLeftOfARescuedRunIsRemoved) {
  TestFolder folder;
  RandomRun run(9);
  for (const bool replaced : {false, true}) {
    auto writer = Create(folder / "a.tpr");
    for (int i = 0; i < 100; ++i) run.Feed(*writer);
    if (replaced) {  // not ours any more
      unlink((folder / "a.tpr").c_str());
      std::ofstream(folder / "a.tpr") << "mine";
    } else {
      unlink((folder / "a.tpr-wal").c_str());
    }
    EXPECT_FALSE(writer->Finish("normally").ok());
    EXPECT_NE(writer->path(), folder / "a.tpr");
    EXPECT_EQ(Number(writer->path(), "SELECT COUNT(*) FROM step"), 100);
    EXPECT_EQ(Exists(folder / "a.tpr"), replaced);
    EXPECT_FALSE(!replaced && Exists(folder / "a.tpr-wal"));
    RemoveRunFile(writer->path());
  }
}

TEST(RunFailureTest, AFullDiskHoldsBoundedMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  TestFolder folder;
  RunWriterOptions options;
  options.max_step_rows = 64;
  options.max_spans = 8;
  auto writer = Create(folder / "a.tpr", options);
  RandomRun run(9);
  FileSizeLimit limit(4096);
  const auto resident_pages = [] {
    long total = 0, resident = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    EXPECT_EQ(std::fscanf(file, "%ld %ld", &total, &resident), 2);
    std::fclose(file);
    return resident;
  };
  for (int i = 0; i < 20'000; ++i) run.Feed(*writer);
  const long before = resident_pages();
  for (int i = 0; i < 60'000; ++i) {
    run.Feed(*writer);
    if (i % 1000 == 0) {
      EXPECT_FALSE(writer->Commit().ok());
    }
  }
  EXPECT_LT(resident_pages() - before, 8 * 1024 * 1024 / sysconf(_SC_PAGESIZE));
}

TEST(RunFailureTest, ARunWhoseFileIsGoneIsSavedElsewhere) {
  TestFolder folder;
  RunAndReference both(folder);
  both.Feed(200);
  ASSERT_TRUE(both.run().Commit().ok());
  unlink((folder / "a.tpr").c_str());
  both.Feed(100);
  const absl::Status status = both.run().Finish("normally");
  const std::string path = both.run().path();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(path, folder / "a.tpr");
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  both.ExpectSame();
  RemoveRunFile(path);
}

TEST(RunFailureTest, ADiskThatStaysFullAtTheEndSavesElsewhereOrSaysSo) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  RandomRun run(4);
  for (int i = 0; i < 300; ++i) run.Feed(*writer);
  absl::Status status;
  {
    FileSizeLimit limit(4096);
    status = writer->Finish("normally");
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("nor could the run be saved elsewhere"));
  EXPECT_EQ(writer->path(), folder / "a.tpr");
  EXPECT_EQ(Scalar(folder / "a.tpr", "PRAGMA integrity_check"), "ok");
}

TEST(RunFailureTest, WhereTheFirstFolderIsFullTheNextIsTried) {
  TestFolder folder;
  TestFolder full;
  RunAndReference both(folder);
  both.Feed(300);
  unlink((folder / "a.tpr").c_str());
  const Variable tmpdir("TMPDIR", full.path());
  absl::Status status;
  {
    const FullFolder disk(full.path());
    status = both.run().Finish("normally");
    EXPECT_GT(FullFolder::refused(), 0);
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("the whole run was saved to /tmp/trainperf-"));
  both.ExpectSame();
  EXPECT_EQ(rmdir(full.path().c_str()), 0) << "something was left there";
  RemoveRunFile(both.run().path());
}

// Whichever allocation of a step fails, and whichever of the end's.
TEST(RunFailureTest, WithoutMemoryTheFileIsWhole) {
  int failed_steps = 0, failed_ends = 0;
  for (const int fails : {1, 2, 3}) {
    for (const int at : {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128}) {
      TestFolder folder;
      auto writer = Create(folder / "a.tpr");
      RandomRun run(4);
      for (int i = 0; i < 99; ++i) run.Feed(*writer);
      ASSERT_TRUE(writer->Commit().ok());
      for (int i = 0; i < 99; ++i) run.Feed(*writer);
      bool thrown = false;
      if (fails & 1) {
        std::vector<StepRecord> more(50);
        for (StepRecord& step : more) step = run.Step();
        const NoMemory none(at, 1);
        try {
          for (const StepRecord& step : more) writer->OnStep(step);
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        failed_steps += thrown;
      }
      absl::Status status;
      {
        const NoMemory none(fails & 2 ? at : INT_MAX, INT_MAX);
        status = writer->Finish("normally");
      }
      failed_ends += !status.ok();
      EXPECT_EQ(status.code(), status.ok() ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted);
      EXPECT_TRUE(status.ok() || fails & 2) << status;
      const std::string path = writer->path();
      writer.reset();
      const int64_t steps = Number(path, "SELECT SUM(steps) FROM step");
      // Of half a step no part is written, nor what is beside it.
      const int64_t all = thrown ? 99 : fails & 1 ? 248 : 198;
      EXPECT_TRUE(steps == all || (!status.ok() && steps == 99))
          << steps << " of " << all << ", " << fails << " " << at;
      ExpectWhole(path, steps);
    }
  }
  EXPECT_GT(failed_steps, 6);
  EXPECT_GT(failed_ends, 3);
}

TEST(RunFailureTest, AForkedChildDoesNotTouchTheFile) {
  TestFolder folder;
  auto writer = Create(folder / "a.tpr");
  RandomRun run(1);
  for (int i = 0; i < 50; ++i) run.Feed(*writer);
  ASSERT_TRUE(writer->Commit().ok());
  const pid_t child = fork();
  if (child == 0) {
    run.Feed(*writer);
    const bool refused = writer->Commit().code() == absl::StatusCode::kFailedPrecondition &&
                         writer->Finish("normally").code() == absl::StatusCode::kFailedPrecondition;
    writer.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (int i = 0; i < 50; ++i) run.Feed(*writer);
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Number(folder / "a.tpr", "SELECT COUNT(*) FROM step"), 100);
  EXPECT_EQ(Scalar(folder / "a.tpr", "PRAGMA integrity_check"), "ok");
}

TEST(RunFailureTest, KilledAtAnyMomentTheFileIsWhole) {
  for (int round = 0; round < 20; ++round) {
    TestFolder folder;
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      RunWriterOptions options;
      options.max_step_rows = 300;
      auto writer = *RunWriter::Create(folder / "a.tpr", options);
      RandomRun run(static_cast<uint32_t>(round));
      for (;;) {
        for (int i = 0; i < 20; ++i) run.Feed(*writer);
        if (!writer->Commit().ok()) _exit(1);
        const int64_t committed = run.steps();
        (void)!write(pipe_fds[1], &committed, sizeof committed);
      }
    }
    close(pipe_fds[1]);
    int64_t committed = 0;
    for (int i = 0; i < 1 + round * 3; ++i) ASSERT_EQ(read(pipe_fds[0], &committed, sizeof committed), 8);
    usleep(static_cast<useconds_t>(round * 113 % 700));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (read(pipe_fds[0], &committed, sizeof committed) == sizeof committed) {
    }
    close(pipe_fds[0]);
    const std::string path = folder / "a.tpr";
    const int64_t steps = Number(path, "SELECT SUM(steps) FROM step");
    EXPECT_GE(steps, committed);
    EXPECT_LE(steps, committed + 20);
    ExpectWhole(path, steps);
  }
}

}  // namespace
}  // namespace trainperf
