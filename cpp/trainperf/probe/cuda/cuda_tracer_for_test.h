// Test support: a tracer on the scripted libcupti, and that nothing is lost without being counted.

#ifndef TRAINPERF_PROBE_CUDA_CUDA_TRACER_FOR_TEST_H_
#define TRAINPERF_PROBE_CUDA_CUDA_TRACER_FOR_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/cuda_tracer.h"
#include "trainperf/probe/cuda/fake_for_test.h"

namespace trainperf {

class CudaTracerTest : public ::testing::Test {
 protected:
  CudaTracerTest() {
    Fake::LoadDriver();
    FAKE(fake_, reset)();
  }
  ~CudaTracerTest() override {
    tracer_.reset();
    FAKE(fake_, hoard)(0);
    EXPECT_EQ(FAKE(fake_, dirty_buffers)(), 0);
    EXPECT_EQ(FAKE(fake_, crashes)(), 0);
    EXPECT_EQ(FAKE(fake_, disordered)(), 0);
    std::vector<BufferPool::Full> full;  // for the next test in this process
    BufferPool::Get().TakeCompleted(&full);
    for (const auto& one : full) BufferPool::Get().GiveBack(one);
    FAKE(fake_, reset)();
  }

  absl::Status TryStart() {
    auto tracer = CudaTracer::Start({{}, TRAINPERF_FAKE_CUPTI}, &names_);
    if (tracer.ok()) tracer_ = *std::move(tracer);
    return tracer.status();
  }
  void Start() {
    const absl::Status status = TryStart();
    ASSERT_TRUE(status.ok()) << status;
  }
  // For calls with times of the test's own making, for which the fake does not call back.
  void StartByRecords() {
    FAKE(fake_, set_result)("cuptiEnableCallback", cupti::kUnknownError);
    Start();
  }
  void ExpectLeftAsItWas() {
    for (uint32_t kind = 0; kind < 60; ++kind) EXPECT_FALSE(FAKE(fake_, kind_enabled)(kind)) << kind;
    for (uint32_t cbid = 0; cbid < 1024; ++cbid) EXPECT_FALSE(FAKE(fake_, call_enabled)(0, cbid)) << cbid;
    EXPECT_EQ(FAKE(fake_, attribute)(5), 0);  // the next user's buffers may not be zeroed
    EXPECT_EQ(FAKE(fake_, attribute)(9), 1);
    EXPECT_EQ(FAKE(fake_, thread_id_type)(), 0u);
    EXPECT_FALSE(FAKE(fake_, subscribed)());
  }
  void Drain() { EXPECT_TRUE(tracer_->Drain(NowNs(), &batch_)) << tracer_->why(); }

  int64_t Delivered() const {
    const DecoderStats& stats = tracer_->decoded();
    return stats.kernels + stats.copies + stats.calls + stats.other;
  }
  // delivered + dropped = produced
  void ExpectNothingLost(int64_t to_others = 0) {
    EXPECT_EQ(Delivered() + tracer_->losses().refused + tracer_->losses().dropped + tracer_->losses().zero_time +
                  tracer_->losses().bad + to_others + FAKE(fake_, held)(),
              FAKE(fake_, produced)());
  }
  void Launches(int count, uint32_t first, int64_t from_ns) {
    for (int i = 0; i < count; ++i) {
      const int64_t at = from_ns + i * 1000;
      fake_.Call(211, first + static_cast<uint32_t>(i), at, at + 500);
      fake_.Kernel(first + static_cast<uint32_t>(i), at + 600, at + 900);
    }
  }

  Fake fake_;
  NameTable names_{100};
  std::unique_ptr<CudaTracer> tracer_;
  DecodedBatch batch_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CUDA_TRACER_FOR_TEST_H_
