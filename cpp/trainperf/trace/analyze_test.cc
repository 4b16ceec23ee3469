#include "trainperf/trace/analyze.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "trainperf/run/database.h"
#include "trainperf/run/run_path.h"
#include "trainperf/timeline/timeline.h"
#include "trainperf/trace/trace_test_util.h"

namespace trainperf {
namespace {

using ::testing::HasSubstr;

// A job on two devices, with everything that the reader knows.
std::string Job(int steps) {
  TraceText text;
  text.Add(R"({"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "ts": 0, "args": {"name": "main"}})");
  for (int i = 0; i < steps; ++i) {
    const double at = 1000.0 + i * 1000;
    const int id = i * 10;
    text.Step(100 + i, at, 990);
    text.Span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 10, 100);
    text.Span("python_function", "train.py(12): step", at + 120, 700);
    text.Op("aten::linear", at + 130, 100).Call("cudaLaunchKernel", at + 140, 20, id + 1);
    text.Kernel("ampere_sgemm_64x64", at + 170, 60, id + 1);
    text.Op("aten::item", at + 250, 100).Call("cudaMemcpyAsync", at + 255, 10, id + 2);
    text.Span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 270, 2, 7,
              absl::StrCat(R"("device": 0, "stream": 7, "bytes": 4, "correlation": )", id + 2));
    text.Call("cudaStreamSynchronize", at + 266, 60, id + 3);
    text.Op("autograd::engine::evaluate_function: AddmmBackward0", at + 400, 100, 2);
    text.Call("cudaLaunchKernel", at + 410, 10, id + 4, 2).Kernel("ncclDevKernel_AllReduce", at + 430, 50, id + 4, 1);
    text.Span("user_annotation", "Optimizer.step#SGD.step", at + 600, 100);
    text.Call("cudaGraphLaunch", at + 610, 10, id + 5)
        .Kernel("a", at + 630, 5, id + 5)
        .Kernel("b", at + 640, 5, id + 5);
    text.Call("cudaMalloc", at + 720, 50, id + 6);
  }
  return text.text();
}

std::string One(const std::string& path, const std::string& query) {
  auto db = Database::Open(path);
  EXPECT_TRUE(db.ok());
  const auto text = db->Text(query.c_str());
  return text.ok() ? *text : std::string(text.status().message());
}

class RunFile {
 public:
  explicit RunFile(std::string path) : path_(std::move(path)) {}
  ~RunFile() { RemoveRunFile(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(AnalyzeTest, WritesAnOrdinaryRun) {
  const TempFile trace(Job(5));
  const auto summary = AnalyzeTrace(trace.path(), {});
  ASSERT_TRUE(summary.ok()) << summary.status();
  const RunFile run(summary->path);
  EXPECT_EQ(summary->devices, 2);
  EXPECT_EQ(summary->rank, 3);
  EXPECT_EQ(One(run.path(), "SELECT COUNT(*) || ' ' || MIN(first_step) || ' ' || MAX(first_step) FROM step"),
            "5 100 104");
  EXPECT_EQ(One(run.path(), "SELECT value FROM meta WHERE key = 'source'"), "trace");
  EXPECT_EQ(One(run.path(), "SELECT tier FROM tier WHERE probe = 'cuda'"), "trace");
  EXPECT_EQ(One(run.path(), "SELECT tier FROM tier WHERE probe = 'gil_waits'"), "off");
  EXPECT_EQ(One(run.path(), "SELECT value FROM meta WHERE key = 'ended'"), "normally");
  EXPECT_EQ(One(run.path(), "SELECT name FROM thread WHERE id = 1"), "main");
  EXPECT_EQ(One(run.path(), "SELECT function || ' ' || file || ' ' || line FROM site WHERE file = 'train.py'"),
            "step train.py 12");
}

TEST(AnalyzeTest, SaysThatThereAreMoreDevicesThanItTellsOf) {
  TraceText text;
  for (int i = 0; i < 3; ++i) {
    const double at = 1000.0 + i * 1000;
    text.Step(i, at, 990);
    for (int device = 0; device < kMaxDevices + 1; ++device) {
      const int id = i * 100 + device + 1;
      text.Call("cudaLaunchKernel", at + 10 * device, 5, id).Kernel("k", at + 10 * device + 8, 100, id, device);
    }
    text.Op("autograd::engine::evaluate_function: AddmmBackward0", at + 400, 100, 2);
  }
  const TempFile trace(text.text());
  const auto summary = AnalyzeTrace(trace.path(), {});
  ASSERT_TRUE(summary.ok()) << summary.status();
  const RunFile run(summary->path);
  EXPECT_EQ(One(run.path(), "SELECT COUNT(DISTINCT device) FROM device_step"), absl::StrCat(kMaxDevices));
  EXPECT_EQ(One(run.path(), "SELECT count FROM dropped WHERE what = 'device_ops'"), "3");
  EXPECT_EQ(One(run.path(), "SELECT text FROM note WHERE text LIKE '%devices%'"), Timeline::RefusedOpsNote());

  const TempFile two(Job(3));
  const auto few = AnalyzeTrace(two.path(), {});
  ASSERT_TRUE(few.ok()) << few.status();
  const RunFile small(few->path);
  EXPECT_EQ(One(small.path(), "SELECT count FROM dropped WHERE what = 'device_ops'"), "0");
  EXPECT_EQ(One(small.path(), "SELECT COUNT(*) FROM note WHERE text LIKE '%devices%'"), "0");
}

TEST(AnalyzeTest, FailsWithoutLeavingAFile) {
  const TempFile trace("no trace");
  AnalyzeOptions options;
  options.output = trace.path() + ".tpr";
  const auto failed = AnalyzeTrace(trace.path(), options);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
  struct stat facts;
  EXPECT_NE(stat(options.output.c_str(), &facts), 0);

  const TempFile job(Job(2));
  options.output = job.path();  // the trace itself
  EXPECT_EQ(AnalyzeTrace(job.path(), options).status().code(), absl::StatusCode::kAlreadyExists);
  options.output = "/no/such/folder/a.tpr";
  EXPECT_EQ(AnalyzeTrace(job.path(), options).status().code(), absl::StatusCode::kNotFound);

  options.output = job.path() + ".tpr";
  options.progress = [](double share) { return share < 0.7; };
  EXPECT_EQ(AnalyzeTrace(job.path(), options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_NE(stat(options.output.c_str(), &facts), 0);
}

// Whatever stands in a file: an answer, and a run whose steps add up. `make fuzz` does it for minutes, under ASan.
TEST(AnalyzeTest, SurvivesRandomDamage) {
  const char* const asked = getenv("FUZZ_SECONDS");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(asked != nullptr ? atoi(asked) : 1);
  std::random_device device;
  const unsigned seed = asked != nullptr ? device() : 7;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string job = Job(6);
  int64_t rounds = 0;
  int64_t read = 0;
  while (std::chrono::steady_clock::now() < until) {
    ++rounds;
    std::string bad = job;
    for (int n = static_cast<int>(random() % 5); n >= 0; --n) {
      const size_t at = random() % bad.size();
      switch (random() % 6) {
        case 0:
          bad[at] = "{}[]\",:\\ 0e-.\n\xff"[random() % 15];
          break;
        case 1:
          bad.erase(at, random() % 300);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 400));
          break;
        case 3:
          bad[at] = static_cast<char>(random());
          break;
        default: {  // a number, anywhere in what it can be
          const size_t digit = bad.find_first_of("123456789", at);
          if (digit != std::string::npos) bad.replace(digit, 1, std::to_string(random() >> (random() % 32)));
          break;
        }
      }
      if (bad.empty()) bad = "{";
    }
    const TempFile file(bad);
    const auto summary = AnalyzeTrace(file.path(), {});
    if (!summary.ok()) {
      EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << summary.status();
      continue;
    }
    ++read;
    const RunFile run(summary->path);
    EXPECT_EQ(One(run.path(), "SELECT COUNT(*) FROM dropped WHERE what = 'unbalanced_steps'"), "0");
  }
  EXPECT_GT(read, rounds / 4);
  if (asked != nullptr)
    printf("%lld files, %lld of them read\n", static_cast<long long>(rounds), static_cast<long long>(read));
}

}  // namespace
}  // namespace trainperf
