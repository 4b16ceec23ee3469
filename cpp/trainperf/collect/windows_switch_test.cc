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

TEST(WindowsSwitchTest, NothingIsLostWhileAProfilerComesAndGoes) {
  const Fake fake;
  Fake::LoadDriver();
  FAKE(fake, reset)();
  TestFolder folder;
  CollectorOptions options;
  options.gil = GilTier::kOff;
  options.sampler_hz = 0;
  options.cuda_steps = CudaSteps::kSome;
  auto started = Collector::Start(folder / "a.tpr", options);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<Collector> collector = *std::move(started);
  ASSERT_TRUE(collector->TraceCuda({{}, TRAINPERF_FAKE_CUPTI}));

  std::atomic<bool> trains{true};
  std::thread profiler([&] {
    while (trains.load()) {
      std::this_thread::sleep_for(kBetweenProfiles);
      collector->PauseCuda();
      collector->ResumeCuda();
    }
  });
  int switches = 0;
  auto* const feed = FAKE(fake, feed);
  auto* const enabled = FAKE(fake, kind_enabled);
  for (const int64_t end_ns = NowNs() + kLongestNs; switches < kSwitches && NowNs() < end_ns;) {
    feed("gemm", 7, 40, 1'000, 20'000);
    marks::Step();
    if (!SafePoints::Pass()) continue;
    const int before = enabled(kKernels);
    collector->ChangeCudaTier();
    switches += enabled(kKernels) != before;
  }
  trains.store(false);
  profiler.join();
  collector->Ends();
  collector->RemoveProbes();
  ASSERT_TRUE(collector->Finish("test").ok());

  EXPECT_EQ(switches, kSwitches);
  EXPECT_EQ(FAKE(fake, delivered)(), FAKE(fake, produced)());
  EXPECT_EQ(FAKE(fake, disordered)(), 0);
  EXPECT_FALSE(enabled(kKernels));
  FAKE(fake, reset)();
}

TEST(WindowsSwitchTest, RecordsLostForWantOfABufferEndNoWindows) {
  const Fake fake;
  Fake::LoadDriver();
  FAKE(fake, reset)();
  TestFolder folder;
  CollectorOptions options;
  options.gil = GilTier::kOff;
  options.sampler_hz = 0;
  options.cuda_steps = CudaSteps::kSome;
  auto started = Collector::Start(folder / "a.tpr", options);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<Collector> collector = *std::move(started);
  ASSERT_TRUE(collector->TraceCuda({{}, TRAINPERF_FAKE_CUPTI}));

  auto* const feed = FAKE(fake, feed);
  auto* const enabled = FAKE(fake, kind_enabled);
  const auto switched = [&] {
    feed("gemm", 7, 40, 1'000, 20'000);
    marks::Step();
    if (!SafePoints::Pass()) return false;
    const int before = enabled(kKernels);
    collector->ChangeCudaTier();
    return enabled(kKernels) != before;
  };
  FAKE(fake, hoard)(1'000);
  int switches = 0;
  for (const int64_t end_ns = NowNs() + kLongestNs; switches < kSwitches && NowNs() < end_ns;) switches += switched();
  // Until it is known what came of the windows that ended.
  for (const int64_t end_ns = NowNs() + kLooksBackNs; NowNs() < end_ns;) switches += switched();
  ASSERT_GT(FAKE(fake, dropped)(), 0);
  FAKE(fake, hoard)(0);
  const int before = switches;
  for (const int64_t end_ns = NowNs() + kLongestNs; switches == before && NowNs() < end_ns;) switches += switched();
  collector->Ends();
  collector->RemoveProbes();
  ASSERT_TRUE(collector->Finish("test").ok());

  EXPECT_GT(switches, before);
  FAKE(fake, reset)();
}

}  // namespace
}  // namespace trainperf
