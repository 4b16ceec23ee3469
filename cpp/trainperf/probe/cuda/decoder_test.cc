// The decoder on buffers of the scripted libcupti, of each version's layout.

#include "trainperf/probe/cuda/decoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "trainperf/event/names.h"
#include "trainperf/probe/cuda/call_table.h"
#include "trainperf/probe/cuda/fake_for_test.h"

namespace trainperf {
namespace {

constexpr uint64_t kTime = 1'700'000'000'000'000'000;
std::vector<uint8_t> g_buffer;
size_t g_valid = 0;

void Requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = g_buffer.data();
  *size = g_buffer.size();
  *max_records = 0;
}
void Completed(void*, uint32_t, uint8_t*, size_t, size_t valid) { g_valid = valid; }

class DecoderTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  DecoderTest() {
    FAKE(fake_, reset)();
    FAKE(fake_, set_version)(GetParam());
    api_ = fake_.Load();
    g_buffer.assign(1 << 20, 0);
    g_valid = 0;
    api_.ActivityRegisterCallbacks(&Requested, &Completed);
    for (const uint32_t kind : {1, 2, 4, 5, 10, 17, 22, 38, 52}) api_.ActivityEnable(kind);
    clock_.Sample(1'000'000'000, kTime);
    decoder_ = std::make_unique<Decoder>(api_, &clock_, &names_);
  }
  ~DecoderTest() override { FAKE(fake_, reset)(); }

  // Ticks of `us` after CLOCK_MONOTONIC's second 1.
  static uint64_t At(int64_t us) { return kTime + static_cast<uint64_t>(us) * 1000; }
  static int64_t Ns(int64_t us) { return 1'000'000'000 + us * 1000; }

  DecodedBatch Decode() {
    api_.ActivityFlushAll(0);
    DecodedBatch batch;
    decoder_->Decode(g_buffer.data(), g_valid, &batch);
    return batch;
  }

  Fake fake_;
  CuptiApi api_;
  CuptiClock clock_;
  NameTable names_{100};
  std::unique_ptr<Decoder> decoder_;
};

TEST_P(DecoderTest, ReadsEachKindOfRecord) {
  const auto pid = static_cast<uint32_t>(getpid());
  FAKE(fake_, put_kernel)(1, 7, 5, "_Z6kernelPfi", At(10), At(30), 0, 0);
  FAKE(fake_, put_kernel)(0, 8, 6, "ampere_sgemm", At(11), At(31), 99, 0);
  FAKE(fake_, put_copy)(0, 9, 7, 1, 1, 3, 4096, At(40), At(41), 0);
  FAKE(fake_, put_copy)(0, 9, 8, 2, 3, 2, 4, At(42), At(43), 0);
  FAKE(fake_, put_copy)(0, 9, 9, 8, 3, 3, 1 << 20, At(44), At(45), 1);
  FAKE(fake_, put_memset)(0, 7, 10, 512, At(50), At(51));
  FAKE(fake_, put_call)(0, 211, 77, 5, At(1), At(2), 0, pid);
  FAKE(fake_, put_call)(1, 652, 77, 11, At(3), At(4), 0, pid);
  FAKE(fake_, put_call)(0, 20, 77, 12, At(5), At(6), 2, pid);  // cudaMalloc failed
  FAKE(fake_, put_sync)(3, 13, At(60), At(70));
  FAKE(fake_, put_sync)(2, 14, At(60), At(70));  // a stream's, not the host's
  FAKE(fake_, put_overhead)(5u << 16, 77, 5, At(1), At(2));
  FAKE(fake_, put_overhead)(6u << 16, 0, 5, At(1), At(2));
  FAKE(fake_, put_overhead)(7u << 16, 77, 5, At(100), At(103));
  FAKE(fake_, put_overhead)(1u << 16, 78, 5, At(100), At(150));  // a thread that calls nothing: CUPTI's own
  FAKE(fake_, put_jit)(3, 15, At(80), At(90));
  FAKE(fake_, put_jit)(1, 15, At(80), At(90));
  const DecodedBatch batch = Decode();

  ASSERT_EQ(batch.ops.size(), 6u);
  const DeviceOp& kernel = batch.ops[0];
  EXPECT_EQ(kernel.kind, DeviceOpKind::kKernel);
  EXPECT_EQ(kernel.start_ns, Ns(10));
  EXPECT_EQ(kernel.end_ns, Ns(30));
  EXPECT_EQ(kernel.device, 1u);
  EXPECT_EQ(kernel.stream, 7u);
  EXPECT_EQ(kernel.bytes, -1);
  EXPECT_EQ(kernel.flags, 0);
  EXPECT_EQ(names_.name(kernel.name), "kernel(float*, int)");
  EXPECT_EQ(batch.ops[1].flags, kFromGraph);
  EXPECT_EQ(names_.name(batch.ops[1].name), "ampere_sgemm");
  EXPECT_EQ(batch.ops[2].direction, CopyDirection::kHostToDevice);
  EXPECT_EQ(batch.ops[2].from, MemoryKind::kPageable);
  EXPECT_EQ(batch.ops[2].to, MemoryKind::kDevice);
  EXPECT_EQ(batch.ops[2].bytes, 4096);
  EXPECT_EQ(batch.ops[3].direction, CopyDirection::kDeviceToHost);
  EXPECT_EQ(batch.ops[3].to, MemoryKind::kPinned);
  EXPECT_EQ(batch.ops[4].direction, CopyDirection::kPeerToPeer);
  EXPECT_EQ(batch.ops[4].stream, 9u);
  EXPECT_EQ(batch.ops[4].correlation - kernel.correlation, 4u);
  EXPECT_EQ(batch.ops[5].kind, DeviceOpKind::kMemset);
  EXPECT_EQ(batch.ops[5].bytes, 512);

  ASSERT_EQ(batch.calls.size(), 7u);
  EXPECT_EQ(batch.calls[0].call, HostCall::kLaunchKernel);
  EXPECT_EQ(batch.calls[0].correlation, kernel.correlation);
  EXPECT_EQ(batch.calls[0].tid, 77u);
  EXPECT_EQ(batch.calls[1].call, HostCall::kLaunchKernel);
  EXPECT_EQ(batch.calls[2].call, HostCall::kAlloc);
  EXPECT_TRUE(batch.calls[2].failed);
  EXPECT_EQ(batch.calls[3].call, HostCall::kStreamSync);
  EXPECT_TRUE(batch.calls[3].inner);
  EXPECT_EQ(batch.calls[4].call, HostCall::kModuleLoad);
  EXPECT_EQ(batch.calls[4].tid, 77u);
  EXPECT_EQ(batch.calls[5].call, HostCall::kQueueFull);
  EXPECT_EQ(batch.calls[5].tid, 0u);
  EXPECT_EQ(batch.calls[6].call, HostCall::kJit);
  EXPECT_EQ(decoder_->stats().own_ns, 3000);  // of the application's threads

  const DecoderStats& stats = decoder_->stats();
  EXPECT_EQ(stats.records, FAKE(fake_, produced)());
  EXPECT_EQ(stats.kernels + stats.copies + stats.calls + stats.other + stats.zero_time + stats.bad, stats.records);
}

TEST_P(DecoderTest, LeavesOutAndCountsWhatCannotBeUsed) {
  const auto pid = static_cast<uint32_t>(getpid());
  FAKE(fake_, put_kernel)(0, 7, 1, "k", 0, 0, 0, 0);
  FAKE(fake_, put_kernel)(0, 7, 1, "k", At(10), 0, 0, 0);
  FAKE(fake_, put_kernel)(0, 7, 1, "k", At(10), At(9), 0, 0);
  FAKE(fake_, put_kernel)(0, 7, 1, nullptr, At(10), At(11), 0, 0);
  FAKE(fake_, put_call)(0, 211, 77, 5, At(1), At(2), 0, pid + 1);
  FAKE(fake_, put_call)(0, 10, 77, 5, At(1), At(2), 0, pid);  // cudaGetLastError
  FAKE(fake_, put_call)(1, 0xffffffff, 77, 5, At(1), At(2), 0, pid);
  FAKE(fake_, put_unknown)(12);
  FAKE(fake_, put_unknown)(9999);
  const DecodedBatch batch = Decode();
  ASSERT_EQ(batch.ops.size(), 1u);
  EXPECT_EQ(batch.ops[0].name, 0u);
  EXPECT_TRUE(batch.calls.empty());
  const DecoderStats& stats = decoder_->stats();
  EXPECT_EQ(stats.zero_time, 2);
  EXPECT_EQ(stats.bad, 2);
  EXPECT_EQ(stats.other, 4);
  EXPECT_EQ(stats.records, 9);
}

TEST_P(DecoderTest, ANameThatMovedIsReadAgain) {
  char name[32] = "first_kernel";
  FAKE(fake_, put_kernel)(0, 7, 1, name, At(10), At(11), 0, 0);
  const uint32_t first = Decode().ops[0].name;
  strcpy(name, "another_kernel");  // its module went, and another's came to lie there
  g_buffer.assign(g_buffer.size(), 0);
  FAKE(fake_, put_kernel)(0, 7, 2, name, At(20), At(21), 0, 0);
  const uint32_t second = Decode().ops[0].name;
  EXPECT_EQ(names_.name(first), "first_kernel");
  EXPECT_EQ(names_.name(second), "another_kernel");
}

TEST_P(DecoderTest, BytesOfAnyKindDoNotBreakIt) {
  // Names are pointers that only CUPTI can vouch for; everything else in a record may be anything.
  std::mt19937 random(GetParam());
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> bytes(4096);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    for (size_t at = 0; at + 256 < bytes.size();) {
      auto* record = reinterpret_cast<cupti::Record*>(&bytes[at]);
      record->kind = 1 + random() % 60;
      if (record->kind == cupti::kKindConcurrentKernel) reinterpret_cast<cupti::KernelRecord*>(record)->name = nullptr;
      cupti::Record* next = record;
      if (api_.ActivityGetNextRecord(bytes.data(), bytes.size(), &next) != cupti::kSuccess || next == nullptr) break;
      at = static_cast<size_t>(reinterpret_cast<uint8_t*>(next) - bytes.data());
    }
    DecodedBatch batch;
    decoder_->Decode(bytes.data(), bytes.size() - 256, &batch);
    for (const DeviceOp& op : batch.ops) ASSERT_LE(op.start_ns, op.end_ns);
    for (const CudaCallRecord& call : batch.calls) ASSERT_LE(call.start_ns, call.end_ns);
  }
  const DecoderStats& stats = decoder_->stats();
  EXPECT_EQ(stats.kernels + stats.copies + stats.calls + stats.other + stats.zero_time + stats.bad, stats.records);
}

std::string VersionName(const ::testing::TestParamInfo<uint32_t>& info) { return "Api" + std::to_string(info.param); }
INSTANTIATE_TEST_SUITE_P(Versions, DecoderTest,
                         ::testing::Values(22, 23, 24, 26, 27, 28, 130001, 130101, 130202, 130301, 130500),
                         VersionName);

TEST(CallTable, HasEveryLaunchOfTheDesign) {
  for (const uint32_t cbid : {211, 214, 269, 430}) {
    EXPECT_EQ(HostCallOf(CudaApi::kRuntime, cbid), static_cast<uint8_t>(HostCall::kLaunchKernel)) << cbid;
  }
  for (const uint32_t cbid : {307, 442, 652, 653, 477}) {
    EXPECT_EQ(HostCallOf(CudaApi::kDriver, cbid), static_cast<uint8_t>(HostCall::kLaunchKernel)) << cbid;
  }
  EXPECT_EQ(HostCallOf(CudaApi::kRuntime, 311), static_cast<uint8_t>(HostCall::kLaunchGraph));
  EXPECT_EQ(HostCallOf(CudaApi::kDriver, 514), static_cast<uint8_t>(HostCall::kLaunchGraph));
  for (const uint32_t cbid : {131, 137, 165})
    EXPECT_TRUE(IsSync(static_cast<HostCall>(HostCallOf(CudaApi::kRuntime, cbid))));
  for (const uint32_t cbid : {549, 551, 553})
    EXPECT_EQ(HostCallOf(CudaApi::kDriver, cbid), static_cast<uint8_t>(HostCall::kAlloc));
  for (const uint32_t cbid : {550, 552})
    EXPECT_EQ(HostCallOf(CudaApi::kDriver, cbid), static_cast<uint8_t>(HostCall::kFree));
  for (const uint32_t cbid : {19, 20, 21, 678, 742})
    EXPECT_EQ(HostCallOf(CudaApi::kDriver, cbid), static_cast<uint8_t>(HostCall::kModuleLoad));
  EXPECT_EQ(HostCallOf(CudaApi::kDriver, 365), static_cast<uint8_t>(HostCall::kJit));
  // cudaGetLastError, GetDevice, EventQuery ...: they come often and say nothing.
  for (const uint32_t cbid : {10, 11, 16, 17, 134, 138, 151, 200, 251, 317, 324, 409, 433, 461})
    EXPECT_EQ(HostCallOf(CudaApi::kRuntime, cbid), kNoHostCall) << cbid;
}

}  // namespace
}  // namespace trainperf
