// What CUPTI tells of CUDA's calls: by callbacks, or by records where there can be none.

#include "trainperf/probe/cuda/call_log.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <tuple>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/cuda_tracer_for_test.h"

namespace trainperf {
namespace {

class CallLogTest : public CudaTracerTest {};

TEST_F(CallLogTest, CallsAreToldByCallbacksWithTheIdsOfWhatTheyLaunch) {
  FAKE(fake_, set_nested_driver_calls)(1);
  Start();
  const int64_t before = NowNs();
  const uint32_t launch = FAKE(fake_, launch)("kernel", 7, 1000);
  std::thread([&] { FAKE(fake_, call)(1, 307, 2 * kMs, /*returned=*/2); }).join();  // cuLaunchKernel, by itself
  FAKE(fake_, call)(0, 10, 0, 0);                                                   // cudaGetLastError
  FAKE(fake_, synchronize)();
  Drain();
  ASSERT_EQ(batch_.calls.size(), 4u);  // the runtime's launch without the driver's in it; the wait has a record, too
  std::stable_sort(batch_.calls.begin(), batch_.calls.end(),
                   [](const auto& a, const auto& b) { return a.inner < b.inner; });
  const auto& [first, second, wait, inner] =
      std::tie(batch_.calls[0], batch_.calls[1], batch_.calls[2], batch_.calls[3]);
  EXPECT_EQ(first.call, HostCall::kLaunchKernel);
  ASSERT_EQ(batch_.ops.size(), 1u);
  EXPECT_EQ(first.correlation, batch_.ops[0].correlation);
  EXPECT_EQ(static_cast<uint32_t>(first.correlation), launch);
  EXPECT_EQ(first.tid, static_cast<uint32_t>(syscall(SYS_gettid)));
  EXPECT_FALSE(first.failed);
  EXPECT_GE(first.start_ns, before);
  EXPECT_LE(first.end_ns, second.start_ns);
  EXPECT_EQ(second.call, HostCall::kLaunchKernel);
  EXPECT_NE(second.tid, first.tid);
  EXPECT_GE(second.end_ns - second.start_ns, 2 * kMs);
  EXPECT_TRUE(second.failed);
  EXPECT_EQ(wait.call, HostCall::kStreamSync);
  EXPECT_TRUE(inner.inner);
  EXPECT_EQ(inner.correlation, wait.correlation);
  EXPECT_EQ(tracer_->decoded().logged_calls, 3);
  EXPECT_LE(wait.end_ns, NowNs());
  ExpectNothingLost();
}

TEST_F(CallLogTest, ModulesThatTheDriverLoadsWithinACallAreTold) {
  Start();
  const cupti::CallbackData call = {cupti::kEnter, "", nullptr, nullptr, "", nullptr, 1, nullptr, 5};
  uint64_t outer = 0, inner = 0, within = 0;
  const auto at = [&](cupti::CallbackSite site, uint64_t* data) {
    cupti::CallbackData copy = call;
    copy.site = site;
    copy.correlation_data = data;
    return copy;
  };
  CallLog& log = CallLog::Get();
  log.OnCall(cupti::kRuntimeDomain, 211, at(cupti::kEnter, &outer));
  log.OnCall(cupti::kDriverDomain, 742, at(cupti::kEnter, &inner));  // cuFuncLoad
  log.OnCall(cupti::kDriverDomain, 742, at(cupti::kExit, &inner));
  log.OnCall(cupti::kDriverDomain, 307, at(cupti::kEnter, &within));
  log.OnCall(cupti::kDriverDomain, 307, at(cupti::kExit, &within));
  log.OnCall(cupti::kRuntimeDomain, 211, at(cupti::kExit, &outer));
  Drain();
  ASSERT_EQ(batch_.calls.size(), 2u);
  EXPECT_EQ(batch_.calls[0].call, HostCall::kModuleLoad);
  EXPECT_EQ(batch_.calls[1].call, HostCall::kLaunchKernel);
}

// Who was within a call of the runtime's when the callbacks went never told its end.
TEST_F(CallLogTest, ACallThatEndsWhileNobodyLooksHidesNoOther) {
  Start();
  uint64_t outer = 0;
  const cupti::CallbackData enter = {cupti::kEnter, "", nullptr, nullptr, "", nullptr, 1, &outer, 5};
  CallLog::Get().OnCall(cupti::kRuntimeDomain, 211, enter);
  FAKE(fake_, call)(1, 307, 0, 0);
  Drain();
  EXPECT_TRUE(batch_.calls.empty());  // it is taken for a part of that call
  tracer_->Pause(&batch_);
  tracer_->Resume();
  FAKE(fake_, call)(1, 307, 0, 0);
  Drain();
  EXPECT_EQ(batch_.calls.size(), 1u);
  // And one that began before anyone looked is not told, whatever stands where its start would.
  for (const uint64_t left : {uint64_t{0}, uint64_t{5}, uint64_t{0x7f00'0000'0000'0000}, ~uint64_t{0}}) {
    uint64_t data = left;
    CallLog::Get().OnCall(cupti::kRuntimeDomain, 211, {cupti::kExit, "", nullptr, nullptr, "", nullptr, 1, &data, 6});
  }
  Drain();
  EXPECT_EQ(batch_.calls.size(), 1u);
}

TEST_F(CallLogTest, AChangeOfTiersHidesNoCallEither) {
  Start();
  uint64_t outer = 0;
  CallLog::Get().OnCall(cupti::kRuntimeDomain, 211, {cupti::kEnter, "", nullptr, nullptr, "", nullptr, 1, &outer, 5});
  tracer_->SetTier(CudaTier::kFull);
  FAKE(fake_, call)(1, 307, 0, 0);
  Drain();
  EXPECT_EQ(batch_.calls.size(), 1u);
}

TEST_F(CallLogTest, CallsThatFindTheLogFullAreCounted) {
  Start();
  uint64_t data = 0;
  for (size_t i = 0; i < CallLog::kCalls + 10; ++i) {
    for (const auto site : {cupti::kEnter, cupti::kExit}) {
      CallLog::Get().OnCall(cupti::kRuntimeDomain, 211, {site, "", nullptr, nullptr, "", nullptr, 1, &data, 5});
    }
  }
  Drain();
  EXPECT_EQ(batch_.calls.size(), CallLog::kCalls);
  EXPECT_EQ(tracer_->losses().dropped, 10);
  tracer_.reset();
  Start();  // what an earlier watch lost is not the next one's
  EXPECT_EQ(tracer_->losses().dropped, 0);
}

TEST_F(CallLogTest, AfterAProfilerThatKeepsTheSubscriptionCallsHaveRecords) {
  Start();
  FAKE(fake_, launch)("before", 7, 1000);
  tracer_->Pause(&batch_);
  EXPECT_EQ(batch_.calls.size(), 1u);
  EXPECT_FALSE(FAKE(fake_, call_enabled)(0, 211));
  FAKE(fake_, set_other_subscriber)("CUPTI for <not provided>");
  tracer_->Resume();
  ASSERT_TRUE(tracer_->running()) << tracer_->why();
  EXPECT_TRUE(FAKE(fake_, kind_enabled)(cupti::kKindRuntime));
  FAKE(fake_, launch)("after", 7, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a buffer with a kernel that runs is not given out
  Drain();
  EXPECT_EQ(batch_.calls.size(), 2u);
  EXPECT_EQ(tracer_->decoded().logged_calls, 1);
  ExpectNothingLost();
}

TEST_F(CallLogTest, CallbacksOfOneOfTheApisAreNotEnough) {
  FAKE(fake_, set_result)("cuptiEnableCallback 1", cupti::kUnknownError);
  Start();
  EXPECT_TRUE(FAKE(fake_, kind_enabled)(cupti::kKindDriver));
  FAKE(fake_, launch)("kernel", 7, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a buffer with a kernel that runs is not given out
  Drain();
  EXPECT_EQ(batch_.calls.size(), 1u);  // told once
  EXPECT_EQ(tracer_->decoded().logged_calls, 0);
}

TEST_F(CallLogTest, WithoutCallbacksTheCallsHaveRecords) {
  StartByRecords();
  for (const uint32_t kind : {4, 5}) EXPECT_TRUE(FAKE(fake_, kind_enabled)(kind)) << kind;
  EXPECT_TRUE(FAKE(fake_, call_enabled)(0, 211));
  EXPECT_FALSE(FAKE(fake_, call_enabled)(0, 10));
  FAKE(fake_, launch)("kernel", 7, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a buffer with a kernel that runs is not given out
  Drain();
  ASSERT_EQ(batch_.calls.size(), 1u);
  ASSERT_EQ(batch_.ops.size(), 1u);
  EXPECT_EQ(batch_.calls[0].correlation, batch_.ops[0].correlation);
  EXPECT_EQ(tracer_->decoded().logged_calls, 0);
  ExpectNothingLost();
  tracer_.reset();
  ExpectLeftAsItWas();
}

TEST_F(CallLogTest, Before12_5AllCallsHaveRecordsAndTheDecoderFilters) {
  FAKE(fake_, set_version)(22);
  StartByRecords();
  EXPECT_TRUE(FAKE(fake_, kind_enabled)(4));
  EXPECT_EQ(FAKE(fake_, calls)("cuptiActivityEnableRuntimeApi"), 0);
  const int64_t now = NowNs();
  fake_.Call(10, 1, now - kMs, now - kMs + 10);
  fake_.Call(211, 2, now - kMs, now - kMs + 10);
  Drain();
  EXPECT_EQ(batch_.calls.size(), 1u);
  ExpectNothingLost();
}

}  // namespace
}  // namespace trainperf
