// Windows of traced steps: the training thread switches them while the collector reads and plans, and a profiler comes
// and goes. Under ThreadSanitizer too.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "trainperf/base/clock.h"
#include "trainperf/collect/collector.h"
#include "trainperf/probe/cuda/fake_for_test.h"
#include "trainperf/probe/cuda/safe_points.h"
#include "trainperf/probe/marks.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

constexpr int kSwitches = 4;
constexpr int64_t kLongestNs = 60'000'000'000;
constexpr int64_t kLooksBackNs = 4'000'000'000;
constexpr auto kBetweenProfiles = std::chrono::milliseconds(500);
constexpr uint32_t kKernels = 10;  // CUPTI's kind

class WindowsSwitchTest : public testing::Test {
 protected:
  void SetUp() override {
    Fake::LoadDriver();
    FAKE(fake_, reset)();
    CollectorOptions options;
    options.gil = GilTier::kOff;
    options.sampler_hz = 0;
    options.cuda_steps = CudaSteps::kSome;
    auto started = Collector::Start(folder_ / "a.tpr", options);
    ASSERT_TRUE(started.ok()) << started.status();
    collector_ = *std::move(started);
    ASSERT_TRUE(collector_->TraceCuda({{}, TRAINPERF_FAKE_CUPTI}));
  }

  void TearDown() override { FAKE(fake_, reset)(); }

  // Trains a step; whether a window began or ended after it.
  bool Switched() {
    FAKE(fake_, feed)("gemm", 7, 40, 1'000, 20'000);
    marks::Step();
    if (!SafePoints::Pass()) return false;
    const int before = FAKE(fake_, kind_enabled)(kKernels);
    collector_->ChangeCudaTier();
    return FAKE(fake_, kind_enabled)(kKernels) != before;
  }

  int SwitchesUntil(int wanted) {
    int switches = 0;
    for (const int64_t end_ns = NowNs() + kLongestNs; switches < wanted && NowNs() < end_ns;) switches += Switched();
    return switches;
  }

  void Finish() {
    collector_->Ends();
    collector_->RemoveProbes();
    ASSERT_TRUE(collector_->Finish("test").ok());
  }

  const Fake fake_;
  TestFolder folder_;
  std::unique_ptr<Collector> collector_;
};

TEST_F(WindowsSwitchTest, NothingIsLostWhileAProfilerComesAndGoes) {
  std::atomic<bool> trains{true};
  std::thread profiler([&] {
    while (trains.load()) {
      std::this_thread::sleep_for(kBetweenProfiles);
      collector_->PauseCuda();
      collector_->ResumeCuda();
    }
  });
  EXPECT_EQ(SwitchesUntil(kSwitches), kSwitches);
  trains.store(false);
  profiler.join();
  Finish();

  EXPECT_EQ(FAKE(fake_, delivered)(), FAKE(fake_, produced)());
  EXPECT_EQ(FAKE(fake_, disordered)(), 0);
  EXPECT_FALSE(FAKE(fake_, kind_enabled)(kKernels));
}

TEST_F(WindowsSwitchTest, RecordsLostForWantOfABufferEndNoWindows) {
  FAKE(fake_, hoard)(1'000);
  EXPECT_EQ(SwitchesUntil(kSwitches), kSwitches);
  // Until it is known what came of the windows that ended.
  for (const int64_t end_ns = NowNs() + kLooksBackNs; NowNs() < end_ns;) Switched();
  ASSERT_GT(FAKE(fake_, dropped)(), 0);
  FAKE(fake_, hoard)(0);
  EXPECT_EQ(SwitchesUntil(1), 1);
  Finish();
}

}  // namespace
}  // namespace trainperf
