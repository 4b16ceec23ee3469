// The scripted libcupti's buffers, walked by the real cuptiActivityGetNextRecord: what the tests go by is what CUPTI
// does. So are those that a real GPU's filled.
//
// TRAINPERF_REAL_CUPTI=/path/to/libcupti.so.12 tries another library than the one that CMake found.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "trainperf/probe/cuda/decoder.h"
#include "trainperf/probe/cuda/fake_for_test.h"
#include "trainperf/testing/recorded.h"

namespace trainperf {
namespace {

std::vector<uint8_t> g_golden;
size_t g_golden_valid = 0;
void GoldenRequested(uint8_t** buffer, size_t* size, size_t*) {
  *buffer = g_golden.data();
  *size = g_golden.size();
}
void GoldenCompleted(void*, uint32_t, uint8_t*, size_t, size_t valid) { g_golden_valid = valid; }

std::string RealPath() {
  if (const char* path = getenv("TRAINPERF_REAL_CUPTI")) return path;
#ifdef TRAINPERF_REAL_CUPTI
  return TRAINPERF_REAL_CUPTI;
#else
  return "";
#endif
}

// "" when it can be tried; else why not.
std::string WhyNotReal(const std::string& path) {
  if (path.empty()) return "no libcupti on this machine (set TRAINPERF_REAL_CUPTI to one)";
  // From 13.2 on even cuptiGetVersion needs a driver: 13.2 crashes without one, later ones say 999.
  const pid_t child = fork();
  if (child == 0) _exit(CuptiApi::Load({}, path).ok() ? 0 : 1);
  int loads = 0;
  waitpid(child, &loads, 0);
  const bool works = loads == 0 || dlopen("libcuda.so.1", RTLD_LAZY) != nullptr;
  return works ? "" : path + " does nothing without a driver";
}

TEST(Golden, TheRealLibraryWalksWhatAGpuRecorded) {
  const std::string path = RealPath(), why_not = WhyNotReal(path);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const absl::StatusOr<CuptiApi> real = CuptiApi::Load({}, path);
  ASSERT_TRUE(real.ok()) << real.status();
  Recorded recorded = Recorded::Read(TRAINPERF_RECORDED "/h100-cupti-13.0.cupti");
  if (real->version != recorded.version) GTEST_SKIP() << "other layouts: CUPTI " << real->VersionName();
  CuptiClock clock;
  NameTable names(10);
  Decoder decoder(*real, &clock, &names);
  for (Recorded::Buffer& buffer : recorded.buffers) {
    EXPECT_EQ(decoder.Count(buffer.bytes.data(), buffer.bytes.size()), buffer.records);
  }
}

TEST(Golden, TheRealLibraryWalksOurBuffers) {
  const std::string path = RealPath(), why_not = WhyNotReal(path);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const absl::StatusOr<CuptiApi> real = CuptiApi::Load({}, path);
  ASSERT_TRUE(real.ok()) << real.status();
  ASSERT_GE(real->version, cupti::kVersion12_4);
  // All symbols that we ask for exist; those of a version only from there on.
  EXPECT_TRUE(real->GetResultString && real->Unsubscribe && real->ActivityGetNumDroppedRecords &&
              real->ActivitySetAttribute && real->SetThreadIdType && real->GetThreadIdType);
  EXPECT_EQ(real->can.filter_calls, real->version >= cupti::kVersion12_5);
  EXPECT_EQ(real->SubscribeV2 != nullptr, real->version >= cupti::kVersion13_0);

  Fake fake;
  FAKE(fake, reset)();
  FAKE(fake, set_version)(real->version);  // its layouts
  void* const handle = dlopen(TRAINPERF_FAKE_CUPTI, RTLD_NOW);
  const auto of_fake = [&](const char* name) { return dlsym(handle, name); };
  g_golden.assign(1 << 20, 0);
  reinterpret_cast<decltype(CuptiApi::ActivityRegisterCallbacks)>(of_fake("cuptiActivityRegisterCallbacks"))(
      &GoldenRequested, &GoldenCompleted);
  for (const uint32_t kind : {1, 2, 4, 5, 10, 17, 22, 38, 52}) {
    reinterpret_cast<decltype(CuptiApi::ActivityEnable)>(of_fake("cuptiActivityEnable"))(kind);
  }
  const auto pid = static_cast<uint32_t>(getpid());
  std::vector<uint32_t> kinds;
  for (uint32_t i = 1; i <= 400; ++i) {
    const uint64_t at = 1'000'000'000 + i * 1000;
    switch (i % 9) {
      case 0:
        FAKE(fake, put_kernel)(0, 7, i, "kernel", at, at + 500, 0, 0);
        kinds.push_back(cupti::kKindConcurrentKernel);
        break;
      case 1:
        FAKE(fake, put_copy)(0, 7, i, 1, 1, 3, i, at, at + 500, 0);
        kinds.push_back(cupti::kKindMemcpy);
        break;
      case 2:
        FAKE(fake, put_copy)(0, 7, i, 10, 3, 3, i, at, at + 500, 1);
        kinds.push_back(cupti::kKindMemcpy2);
        break;
      case 3:
        FAKE(fake, put_memset)(0, 7, i, i, at, at + 500);
        kinds.push_back(cupti::kKindMemset);
        break;
      case 4:
        FAKE(fake, put_call)(0, 211, 5, i, at, at + 500, 0, pid);
        kinds.push_back(cupti::kKindRuntime);
        break;
      case 5:
        FAKE(fake, put_call)(1, 307, 5, i, at, at + 500, 0, pid);
        kinds.push_back(cupti::kKindDriver);
        break;
      case 6:
        FAKE(fake, put_sync)(3, i, at, at + 500);
        kinds.push_back(cupti::kKindSynchronization);
        break;
      case 7:
        FAKE(fake, put_overhead)(5u << 16, 5, i, at, at + 500);
        kinds.push_back(cupti::kKindOverhead);
        break;
      case 8:
        FAKE(fake, put_jit)(3, i, at, at + 500);
        kinds.push_back(cupti::kKindJit);
        break;
    }
  }
  reinterpret_cast<decltype(CuptiApi::ActivityFlushAll)>(of_fake("cuptiActivityFlushAll"))(0);
  ASSERT_GT(g_golden_valid, 0u);

  std::vector<uint32_t> walked;
  cupti::Record* record = nullptr;
  while (real->ActivityGetNextRecord(g_golden.data(), g_golden_valid, &record) == cupti::kSuccess) {
    walked.push_back(record->kind);
  }
  EXPECT_EQ(walked, kinds) << "CUPTI " << real->VersionName() << " of " << real->file;

  CuptiClock clock;
  clock.Sample(1'000'000'000, 1'000'000'000);
  NameTable names(10);
  Decoder decoder(*real, &clock, &names);
  DecodedBatch batch;
  decoder.Decode(g_golden.data(), g_golden_valid, &batch);
  EXPECT_EQ(decoder.stats().records, 400);
  EXPECT_EQ(batch.ops.size() + batch.calls.size(), 400u);
  for (const DeviceOp& op : batch.ops) EXPECT_EQ(op.end_ns - op.start_ns, 500);
  FAKE(fake, reset)();
}

}  // namespace
}  // namespace trainperf
