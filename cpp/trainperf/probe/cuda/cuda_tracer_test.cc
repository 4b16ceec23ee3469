// The tracer on the scripted libcupti: what it asks of CUPTI, what it makes of what comes, and that nothing is lost
// without being counted.

#include "trainperf/probe/cuda/cuda_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/cuda_tracer_for_test.h"

namespace trainperf {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CudaTracerTest, AsksForWhatTheDesignSaysAndNothingElse) {
  Start();
  for (const uint32_t kind : {1, 2, 10, 17, 22, 38, 52}) EXPECT_TRUE(FAKE(fake_, kind_enabled)(kind)) << kind;
  for (const uint32_t kind : {3, 4, 5, 20, 49, 51}) EXPECT_FALSE(FAKE(fake_, kind_enabled)(kind)) << kind;
  for (const uint32_t cbid : {10, 11, 16, 17, 134, 138, 151, 200, 251, 317, 324, 409, 433, 461}) {
    EXPECT_FALSE(FAKE(fake_, call_enabled)(0, cbid)) << cbid;
  }
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 211));
  EXPECT_TRUE(FAKE(fake_, call_enabled)(1, 307));
  EXPECT_FALSE(FAKE(fake_, call_enabled)(1, 2));  // of the driver's only those of the table
  EXPECT_EQ(FAKE(fake_, attribute)(5), 1);
  EXPECT_EQ(FAKE(fake_, attribute)(9), 0);
  EXPECT_EQ(FAKE(fake_, thread_id_type)(), 1u);
  EXPECT_TRUE(FAKE(fake_, subscribed)());
  tracer_.reset();
  ExpectLeftAsItWas();
}

TEST_F(CudaTracerTest, GivenUpItLeavesCuptiAsItWas) {
  FAKE(fake_, set_result)("cuptiActivityEnable", 999);
  EXPECT_FALSE(TryStart().ok());
  ExpectLeftAsItWas();

  FAKE(fake_, reset)();
  FAKE(fake_, set_result)("cuptiEnableCallback", 999);
  FAKE(fake_, set_result)("cuptiActivityEnableRuntimeApi", 999);  // one of the two will do
  EXPECT_TRUE(TryStart().ok());
  tracer_.reset();
  FAKE(fake_, set_result)("cuptiActivityEnableDriverApi", 999);
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("cuptiActivityEnableRuntimeApi"));
  ExpectLeftAsItWas();

  FAKE(fake_, reset)();
  Start();
  FAKE(fake_, set_result)("cuptiActivityFlushAll", 999);
  EXPECT_FALSE(tracer_->Drain(NowNs(), &batch_));
  ExpectLeftAsItWas();

  FAKE(fake_, reset)();
  Start();
  tracer_->SetTier(CudaTier::kSync);
  FAKE(fake_, set_result)("cuptiActivityEnable", 999);
  tracer_->SetTier(CudaTier::kFull);
  EXPECT_THAT(tracer_->why(), HasSubstr("cuptiActivityEnable"));
  ExpectLeftAsItWas();

  FAKE(fake_, reset)();
  Start();  // the subscription was given back
  tracer_->Pause(&batch_);
  FAKE(fake_, set_result)("cuptiActivityEnable", 999);
  tracer_->Resume();
  EXPECT_EQ(tracer_->tier(), CudaTier::kOff);
  ExpectLeftAsItWas();
}

TEST_F(CudaTracerTest, DeliversEverythingWithTimesOfTheMonotonicClock) {
  StartByRecords();
  const int64_t now = NowNs();
  Launches(20'000, 1, now - 30 * kMs);  // several buffers
  Drain();
  ASSERT_EQ(batch_.ops.size(), 20'000u);
  ASSERT_EQ(batch_.calls.size(), 20'000u);
  EXPECT_NEAR(static_cast<double>(batch_.ops[0].start_ns - (now - 30 * kMs)), 600, 20'000);
  EXPECT_EQ(batch_.ops[0].correlation, batch_.calls[0].correlation);
  EXPECT_EQ(batch_.calls[0].tid, static_cast<uint32_t>(syscall(SYS_gettid)));
  ExpectNothingLost();
  EXPECT_EQ(tracer_->losses().total(), 0);
  EXPECT_GT(tracer_->CostNs(), 0);
}

TEST_F(CudaTracerTest, TheWatermarkWaitsForABufferWithWorkInFlight) {
  Start();
  const int64_t before = NowNs();
  FAKE(fake_, put_kernel)(0, 7, 1, "long", fake_.Ticks(before), 0, 0, 1);
  usleep(20'000);
  Drain();
  EXPECT_TRUE(batch_.ops.empty());
  EXPECT_LE(tracer_->watermark_ns(), before);
  FAKE(fake_, finish)(1, fake_.Ticks(before), fake_.Ticks(NowNs()));
  const int64_t finished = NowNs();
  usleep(5'000);
  Drain();
  EXPECT_EQ(batch_.ops.size(), 1u);
  EXPECT_GE(tracer_->watermark_ns(), finished);
  ExpectNothingLost();
}

TEST_F(CudaTracerTest, AForcedFlushAtTheEndCountsWhatItCutOff) {
  Start();
  FAKE(fake_, put_kernel)(0, 7, 1, "endless", fake_.Ticks(NowNs()), 0, 0, 1);
  fake_.Kernel(2, NowNs() - 2000, NowNs() - 1000);
  const int64_t before_ns = NowNs();
  tracer_->Stop(&batch_);
  EXPECT_GE(NowNs() - before_ns, CudaTracer::kLastWorkNs);
  EXPECT_LT(NowNs() - before_ns, 10 * CudaTracer::kLastWorkNs);
  EXPECT_EQ(batch_.ops.size(), 1u);
  EXPECT_EQ(tracer_->losses().zero_time, 1);
  EXPECT_THAT(batch_.cut_off, ::testing::ElementsAre(batch_.ops[0].correlation - 1));
  ExpectNothingLost();
}

TEST_F(CudaTracerTest, WorkInFlightAtTheEndIsWaitedFor) {
  Start();
  FAKE(fake_, launch)("long", 7, 40 * kMs);
  FAKE(fake_, launch)("longer", 7, 40 * kMs);
  const int64_t before_ns = NowNs();
  tracer_->Stop(&batch_);
  EXPECT_GE(NowNs() - before_ns, 80 * kMs);
  EXPECT_EQ(batch_.ops.size(), 2u);
  EXPECT_EQ(tracer_->losses().total(), 0);
  EXPECT_TRUE(batch_.cut_off.empty());
  ExpectNothingLost();
  ExpectLeftAsItWas();
}

TEST_F(CudaTracerTest, AnEmptyBufferThatCuptiKeepsIsNotWaitedFor) {
  StartByRecords();
  Launches(10, 1, NowNs() - kMs);
  FAKE(fake_, hoard)(1);
  const int64_t before_ns = NowNs();
  tracer_->Stop(&batch_);
  EXPECT_LT(NowNs() - before_ns, CudaTracer::kLastWorkNs);
  EXPECT_EQ(batch_.ops.size(), 10u);
}

TEST_F(CudaTracerTest, OutOfBuffersTheRecordsAreRefusedAndCounted) {
  for (const uint32_t version : {24, 130001}) {  // the reserve; NULL
    FAKE(fake_, reset)();
    FAKE(fake_, set_version)(version);
    StartByRecords();
    FAKE(fake_, hoard)(BufferPool::kBuffers);
    Launches(1000, 1, NowNs() - 5 * kMs);
    Drain();
    EXPECT_TRUE(batch_.ops.empty());
    EXPECT_EQ(FAKE(fake_, null_buffers)() > 0, version == 130001);
    EXPECT_EQ(FAKE(fake_, crashes)(), 0);
    EXPECT_EQ(tracer_->losses().refused + tracer_->losses().dropped, 2000);
    ExpectNothingLost();
    FAKE(fake_, hoard)(0);
    Drain();
    Launches(10, 2000, NowNs() - 1 * kMs);  // and it goes on
    Drain();
    EXPECT_EQ(batch_.ops.size(), 10u);
    ExpectNothingLost();
    batch_ = DecodedBatch();
    tracer_.reset();
  }
}

TEST_F(CudaTracerTest, BuffersThatComeInReverseOrOnAnotherThreadLoseNothing) {
  FAKE(fake_, set_worker)(1);
  FAKE(fake_, set_reverse_delivery)(1);
  StartByRecords();
  Launches(5000, 0xffffffff - 2500, NowNs() - 20 * kMs);  // correlation ids wrap on the way
  Drain();
  ExpectNothingLost();
  ASSERT_EQ(batch_.ops.size(), 5000u);
  std::vector<uint64_t> ids;
  for (const DeviceOp& op : batch_.ops) {
    if (op.correlation != 0) ids.push_back(op.correlation);
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids.size(), 4999u);  // one of them is 0: none
  for (size_t i = 1; i < ids.size(); ++i) ASSERT_LE(ids[i] - ids[i - 1], 2u);
  FAKE(fake_, set_worker)(0);
}

TEST_F(CudaTracerTest, AStepOfTheClockIsFollowedAndCounted) {
  Start();
  Drain();
  FAKE(fake_, step_clock)(-3600'000 * kMs);
  const int64_t now = NowNs();
  fake_.Kernel(1, now - 500'000, now - 400'000);
  Drain();
  EXPECT_EQ(tracer_->losses().clock_jumps, 1);
  ASSERT_EQ(batch_.ops.size(), 1u);
  EXPECT_NEAR(static_cast<double>(batch_.ops[0].start_ns), static_cast<double>(now - 500'000), 100'000);
}

TEST_F(CudaTracerTest, AnotherSubscriberHasTheSayAndIsNamed) {
  FAKE(fake_, set_other_subscriber)("CUPTI for Nsight Systems");
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("another tool has CUPTI: CUPTI for Nsight Systems"));
  FAKE(fake_, set_other_subscriber)("CUPTI for <not provided>");  // what CUPTI says of one that gave no name
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("nsys, ncu, cuda-gdb"));
  FAKE(fake_, set_version)(26);  // tells no name
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("nsys, ncu, cuda-gdb"));
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityEnable"), 0);
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityRegisterCallbacks"), 0);
}

TEST_F(CudaTracerTest, WithoutADeviceEveryCallSays999AndIsNotRepeated) {
  FAKE(fake_, set_result)("cuptiSubscribe", 999);
  FAKE(fake_, set_result)("cuptiSubscribe_v2", 999);
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("CUPTI_ERROR_UNKNOWN (999)"));
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityEnable"), 0);
  FAKE(fake_, reset)();
  FAKE(fake_, set_result)("cuptiActivityEnable", 999);
  EXPECT_THAT(std::string(TryStart().message()), StartsWith("cuptiActivityEnable: CUPTI_ERROR_UNKNOWN (999)"));
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityEnable"), 1);
  EXPECT_FALSE(FAKE(fake_, subscribed)());
  FAKE(fake_, reset)();
  Start();
  FAKE(fake_, set_result)("cuptiActivityFlushAll", 999);  // in the middle
  EXPECT_FALSE(tracer_->Drain(NowNs(), &batch_));
  EXPECT_EQ(tracer_->tier(), CudaTier::kOff);
  EXPECT_THAT(tracer_->why(), HasSubstr("cuptiActivityFlushAll"));
  const int64_t calls = FAKE(fake_, calls)("cuptiActivityFlushAll");
  EXPECT_FALSE(tracer_->Drain(NowNs(), &batch_));
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityFlushAll"), calls);
}

TEST_F(CudaTracerTest, VersionsThatMustNotBeUsed) {
  FAKE(fake_, set_version)(20);
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("older than CUDA 12.4"));
  FAKE(fake_, set_version)(130000);
  EXPECT_THAT(std::string(TryStart().message()), HasSubstr("can hang and crash"));
  auto missing = CudaTracer::Start({{}, "/nowhere/libcupti.so"}, &names_);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("TRAINPERF_CUPTI_PATH"));
}

TEST_F(CudaTracerTest, PausesForANeighbourAndComesBack) {
  StartByRecords();
  Launches(10, 1, NowNs() - kMs);
  tracer_->Pause(&batch_);
  EXPECT_EQ(batch_.ops.size(), 10u);
  for (uint32_t kind = 0; kind < 60; ++kind) EXPECT_FALSE(FAKE(fake_, kind_enabled)(kind)) << kind;
  EXPECT_EQ(FAKE(fake_, attribute)(5), 0);
  EXPECT_FALSE(FAKE(fake_, subscribed)());
  tracer_->Pause(&batch_);  // nested

  FAKE(fake_, steal_callbacks)(1);  // Kineto: its own callbacks, its own clock, and it keeps the subscription
  FAKE(fake_, set_clock)(2.9, 0);
  FAKE(fake_, set_other_subscriber)("");
  CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI)->ActivityEnable(10);
  fake_.Kernel(50, NowNs() - 2000, NowNs() - 1000);
  Drain();
  EXPECT_GE(tracer_->watermark_ns(), NowNs() - 100 * kMs);
  CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI)->ActivityFlushAll(1);
  EXPECT_EQ(FAKE(fake_, delivered_to_thief)(), 1);
  FAKE(fake_, steal_callbacks)(0);

  tracer_->Resume();
  EXPECT_TRUE(tracer_->paused());
  tracer_->Resume();
  EXPECT_TRUE(tracer_->running()) << tracer_->why();
  const int64_t now = NowNs();
  fake_.Kernel(51, now - 200'000, now - 100'000);
  Drain();
  ASSERT_EQ(batch_.ops.size(), 11u);
  EXPECT_NEAR(static_cast<double>(batch_.ops[10].start_ns), static_cast<double>(now - 200'000), 50'000);
  ExpectNothingLost(/*to_others=*/1);
  tracer_->Resume();  // one too many
  EXPECT_TRUE(tracer_->running());
}

TEST_F(CudaTracerTest, ATiersKindsAndCalls) {
  Start();
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 51));   // cudaMemsetAsync
  EXPECT_TRUE(FAKE(fake_, call_enabled)(1, 549));  // cuMemCreate
  const int64_t callbacks = FAKE(fake_, calls)("cuptiEnableCallback");
  tracer_->SetTier(CudaTier::kSync);
  for (const uint32_t kind : {1, 2, 10, 22}) EXPECT_FALSE(FAKE(fake_, kind_enabled)(kind)) << kind;
  for (const uint32_t kind : {17, 38, 52}) EXPECT_TRUE(FAKE(fake_, kind_enabled)(kind)) << kind;
  for (const uint32_t cbid : {51, 211, 311}) EXPECT_FALSE(FAKE(fake_, call_enabled)(0, cbid)) << cbid;
  EXPECT_FALSE(FAKE(fake_, call_enabled)(1, 307));
  for (const uint32_t cbid : {20, 41, 131}) EXPECT_TRUE(FAKE(fake_, call_enabled)(0, cbid)) << cbid;
  EXPECT_TRUE(FAKE(fake_, call_enabled)(1, 549));
  EXPECT_LT(FAKE(fake_, calls)("cuptiEnableCallback") - callbacks, 100);  // what stays on is not touched
  tracer_->SetTier(CudaTier::kFull);
  for (const uint32_t kind : {1, 2, 10, 22, 17, 38, 52}) EXPECT_TRUE(FAKE(fake_, kind_enabled)(kind)) << kind;
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 51));
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 211));
  EXPECT_FALSE(FAKE(fake_, call_enabled)(0, 10));
  EXPECT_EQ(FAKE(fake_, disordered)(), 0);
}

TEST_F(CudaTracerTest, ATiersCallsByRecords) {
  StartByRecords();
  tracer_->SetTier(CudaTier::kSync);
  EXPECT_FALSE(FAKE(fake_, call_enabled)(0, 211));
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 131));
  Launches(10, 1, NowNs() - kMs);
  tracer_->SetTier(CudaTier::kFull);
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 211));
  EXPECT_FALSE(FAKE(fake_, call_enabled)(0, 10));
  Launches(10, 11, NowNs() - kMs);
  Drain();
  EXPECT_EQ(batch_.ops.size(), 10u);
  EXPECT_EQ(batch_.calls.size(), 10u);
}

TEST_F(CudaTracerTest, WhatIsInFlightWhenKernelsAreGivenUpStillComes) {
  Start();
  for (int i = 0; i < 5; ++i) FAKE(fake_, launch)("long", 7, 10 * kMs);
  tracer_->SetTier(CudaTier::kSync);
  for (int i = 0; i < 5; ++i) FAKE(fake_, launch)("untraced", 7, 1000);
  usleep(60'000);
  Drain();
  EXPECT_EQ(batch_.ops.size(), 5u);
  EXPECT_EQ(batch_.calls.size(), 5u);
  ExpectNothingLost();
}

TEST_F(CudaTracerTest, StolenCallbacksAreNoticed) {
  Start();
  FAKE(fake_, put_kernel)(0, 7, 1, "cut off", fake_.Ticks(NowNs()), 0, 0, 1);  // a buffer is out
  FAKE(fake_, steal_callbacks)(1);
  Drain();
  EXPECT_EQ(tracer_->losses().buffers, 0);
  tracer_->Drain(NowNs() + 6'000 * kMs, &batch_);
  EXPECT_EQ(tracer_->losses().buffers, 1);
  CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI)->ActivityFlushAll(1);
  tracer_.reset();
  // The thief has our buffer, and never gives it back; the next test must not wait for it.
  EXPECT_EQ(BufferPool::Get().out(), 1);
}

TEST_F(CudaTracerTest, AForkedChildTouchesNothing) {
  Start();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 1000; ++i) fake_.Kernel(1, NowNs(), NowNs());  // its own use of CUDA: buffers come and go
    FAKE(fake_, launch)("child's", 7, 1000);
    CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI)->ActivityFlushAll(1);
    std::vector<BufferPool::Full> full;
    BufferPool::Get().TakeCompleted(&full);
    int logged = 0;
    CallLog::Get().Drain([&](const LoggedCall&) { ++logged; });
    _exit(full.empty() && logged == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (int i = 0; i < 10; ++i) FAKE(fake_, launch)("parent's", 7, 1000);
  usleep(1000);
  Drain();
  EXPECT_EQ(batch_.ops.size(), 10u);
  EXPECT_EQ(batch_.calls.size(), 10u);
}

TEST_F(CudaTracerTest, ThreadsThatLaunchWhileItDrainsPausesAndChangesTiersLoseNothing) {
  FAKE(fake_, set_worker)(1);
  FAKE(fake_, set_nested_driver_calls)(1);
  Start();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!stop.load()) {
        FAKE(fake_, launch)("kernel", t, 1000);
        FAKE(fake_, call)(0, 20, 0, 0);
      }
    });
  }
  const int64_t until = NowNs() + 300 * kMs;
  for (int i = 0; NowNs() < until; ++i) {
    Drain();
    if (i % 7 == 3) {
      tracer_->Pause(&batch_);
      tracer_->Resume();
    }
    if (i % 11 == 5) tracer_->SetTier(i % 2 != 0 ? CudaTier::kSync : CudaTier::kFull);
    usleep(2000);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  tracer_->Stop(&batch_);
  ExpectNothingLost();
  EXPECT_GT(batch_.ops.size(), 100u);
}

// As windows come and go while threads of the program's own launch, copy and wait: with callbacks, and with records.
TEST_F(CudaTracerTest, ThreadsThatLaunchWhileTiersComeAndGoLoseNothing) {
  for (const bool by_records : {false, true}) {
    FAKE(fake_, reset)();
    FAKE(fake_, set_worker)(1);
    FAKE(fake_, set_nested_driver_calls)(by_records ? 0 : 1);
    by_records ? StartByRecords() : Start();
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        while (!stop.load()) {
          for (int i = 0; i < 20; ++i) FAKE(fake_, launch)("kernel", t, 1000);
          FAKE(fake_, copy)(1 << 20, 1, 0, t, 1000);
          FAKE(fake_, call)(0, 20, 0, 0);
          FAKE(fake_, synchronize)();
        }
      });
    }
    const int64_t until = NowNs() + 400 * kMs;
    int changes = 0;
    for (; NowNs() < until; ++changes) {
      tracer_->SetTier(changes % 2 == 0 ? CudaTier::kSync : CudaTier::kFull);
      if (changes % 5 == 0) Drain();
      usleep(300);
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    tracer_->SetTier(CudaTier::kFull);
    FAKE(fake_, launch)("last", 9, 1000);
    tracer_->Stop(&batch_);
    EXPECT_GT(changes, 20);
    EXPECT_GT(batch_.ops.size(), 100u);
    ExpectNothingLost();
    ExpectLeftAsItWas();
    tracer_.reset();
    batch_ = DecodedBatch();
  }
}

// And while a profiler comes and goes, as Kineto does: with callbacks, buffers and a clock of its own. Some of the
// threads end with each handful of launches, and buffers come late, the newest first.
TEST_F(CudaTracerTest, InAStormOfLaunchesANeighbourComesAndGoesAndNobodyLosesAnything) {
  FAKE(fake_, set_worker)(1);
  FAKE(fake_, set_reverse_delivery)(1);
  const int out_before = BufferPool::Get().out();  // another test's thief may have one
  Start();
  const CuptiApi neighbour = fake_.Load();
  std::atomic<bool> stop{false};
  const auto launch = [this](uint32_t stream, int count) {
    for (int i = 0; i < count; ++i) FAKE(fake_, launch)("kernel", stream, 1000);
    FAKE(fake_, copy)(1 << 20, 1, 0, stream, 1000);
    FAKE(fake_, call)(0, 20, 0, 0);
    FAKE(fake_, synchronize)();
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      while (!stop.load()) {
        if (t % 2 == 0) {
          launch(t, 20);
        } else {
          std::thread(launch, t, 5).join();
        }
      }
    });
  }
  const int64_t until = NowNs() + 600 * kMs;
  int visits = 0;
  for (int i = 0; NowNs() < until || visits < 3; ++i) {
    tracer_->SetTier(i % 2 == 0 ? CudaTier::kSync : CudaTier::kFull);
    if (i % 5 == 0) Drain();
    if (i % 20 == 10) {
      ++visits;
      tracer_->Pause(&batch_);
      FAKE(fake_, steal_callbacks)(1);
      neighbour.ActivityEnable(cupti::kKindConcurrentKernel);
      usleep(2000);
      tracer_->SetTier(i % 40 == 10 ? CudaTier::kSync : CudaTier::kFull);  // takes effect as it resumes
      neighbour.ActivityDisable(cupti::kKindConcurrentKernel);
      neighbour.ActivityFlushAll(1);
      FAKE(fake_, steal_callbacks)(0);
      tracer_->Resume();
      ASSERT_TRUE(tracer_->running()) << tracer_->why();
    }
    usleep(300);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  tracer_->Stop(&batch_);
  EXPECT_GT(batch_.ops.size(), 100u);
  EXPECT_GT(FAKE(fake_, delivered_to_thief)(), 0);
  EXPECT_EQ(BufferPool::Get().out(), out_before);
  ExpectNothingLost(FAKE(fake_, delivered_to_thief)());
  ExpectLeftAsItWas();
}

TEST(CudaTracerWithoutDriver, SaysSoAtOnce) {
  if (dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW) != nullptr) GTEST_SKIP() << "another test has loaded a driver";
  if (void* real = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(real);
    GTEST_SKIP() << "this machine has a driver";
  }
  NameTable names(10);
  const auto tracer = CudaTracer::Start({{}, TRAINPERF_FAKE_CUPTI}, &names);
  EXPECT_EQ(tracer.status().message(), "no driver (libcuda.so.1)");
}

}  // namespace
}  // namespace trainperf
