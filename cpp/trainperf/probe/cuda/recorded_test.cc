// What is read from the buffers of a real H100, against what the recorded program did (tests/gpu/record_buffers.py).

#include "trainperf/testing/recorded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "trainperf/probe/cuda/decoder.h"
#include "trainperf/probe/cuda/fake_for_test.h"

namespace trainperf {
namespace {

class RecordedTest : public testing::Test {
 protected:
  void SetUp() override {
    FAKE(fake_, reset)();
    FAKE(fake_, set_version)(recorded_.version);  // its layouts: those of the scripted library are tried as well
    const CuptiApi api = fake_.Load();
    recorded_.MoveHere(api.ActivityGetNextRecord);
    for (const auto& [monotonic_ns, ticks] : recorded_.clocks) clock_.Sample(monotonic_ns, ticks);
    Decoder decoder(api, &clock_, &names_);
    for (Recorded::Buffer& buffer : recorded_.buffers) {
      EXPECT_EQ(decoder.Count(buffer.bytes.data(), buffer.bytes.size()), buffer.records);
      decoder.Decode(buffer.bytes.data(), buffer.bytes.size(), &batch_);
    }
    stats_ = decoder.stats();
  }
  void TearDown() override { FAKE(fake_, reset)(); }

  int64_t Truth(const std::string& what) const { return recorded_.truth.at(what); }
  std::set<uint64_t> CorrelationsOf(HostCall what) const {
    std::set<uint64_t> found;
    for (const CudaCallRecord& call : batch_.calls) {
      if (call.call == what && !call.inner) found.insert(call.correlation);
    }
    return found;
  }
  std::vector<DeviceOp> Copies(CopyDirection direction, MemoryKind from, MemoryKind to) const {
    std::vector<DeviceOp> found;
    for (const DeviceOp& op : batch_.ops) {
      const bool copy = op.kind == DeviceOpKind::kMemcpy;
      if (copy && op.direction == direction && op.from == from && op.to == to) found.push_back(op);
    }
    return found;
  }

  Fake fake_;
  Recorded recorded_ = Recorded::Read(TRAINPERF_RECORDED "/h100-cupti-13.0.cupti");
  CuptiClock clock_;
  NameTable names_{100};
  DecodedBatch batch_;
  DecoderStats stats_;
};

TEST_F(RecordedTest, NothingInItIsBad) {
  int64_t records = 0;
  for (const Recorded::Buffer& buffer : recorded_.buffers) records += buffer.records;
  EXPECT_EQ(stats_.records, records);
  EXPECT_EQ(stats_.bad, 0);
  EXPECT_EQ(stats_.zero_time, 0);
  EXPECT_EQ(stats_.kernels + stats_.copies + stats_.calls + stats_.other, records);
}

TEST_F(RecordedTest, EveryOperationHasTheCallThatLaunchedIt) {
  std::set<uint64_t> known;
  for (const HostCall call : {HostCall::kLaunchKernel, HostCall::kLaunchGraph, HostCall::kMemcpy, HostCall::kMemset}) {
    known.merge(CorrelationsOf(call));
  }
  ASSERT_GT(batch_.ops.size(), 50u);
  for (const DeviceOp& op : batch_.ops) EXPECT_EQ(known.count(op.correlation), 1u) << names_.name(op.name);
}

TEST_F(RecordedTest, ItLaunchesFromTwoThreads) {
  std::set<uint32_t> threads;
  for (const CudaCallRecord& call : batch_.calls) {
    if (call.call == HostCall::kLaunchKernel && !call.inner) threads.insert(call.tid);
  }
  EXPECT_EQ(threads.size(), 2u);  // the program's, and autograd's for what is backward
  EXPECT_EQ(threads.count(recorded_.process), 1u);
}

TEST_F(RecordedTest, CopiesTellTheirMemory) {
  const auto steps = static_cast<size_t>(Truth("steps"));
  for (const MemoryKind from : {MemoryKind::kPageable, MemoryKind::kPinned}) {
    const auto copies = Copies(CopyDirection::kHostToDevice, from, MemoryKind::kDevice);
    EXPECT_EQ(copies.size(), steps);
    for (const DeviceOp& copy : copies) EXPECT_EQ(copy.bytes, Truth("copy_bytes"));
  }
  const auto items = Copies(CopyDirection::kDeviceToHost, MemoryKind::kDevice, MemoryKind::kPinned);
  EXPECT_EQ(items.size(), steps);  // item(): four bytes, to memory that torch pins for it
  for (const DeviceOp& item : items) EXPECT_EQ(item.bytes, 4);
}

TEST_F(RecordedTest, AStepTakesAsLongAsTheDevicesEventsSay) {
  const auto begins = Copies(CopyDirection::kHostToDevice, MemoryKind::kPageable, MemoryKind::kDevice);
  const auto ends = Copies(CopyDirection::kDeviceToHost, MemoryKind::kDevice, MemoryKind::kPinned);
  ASSERT_EQ(begins.size(), static_cast<size_t>(Truth("steps")));
  ASSERT_EQ(ends.size(), begins.size());
  for (size_t step = 0; step < begins.size(); ++step) {
    const auto span_us = static_cast<double>(Truth("span_us_" + std::to_string(step)));
    const auto found_us = static_cast<double>(ends[step].end_ns - begins[step].start_ns) / 1e3;
    EXPECT_LE(found_us, span_us) << step;  // the events are just outside of it
    EXPECT_GE(found_us, 0.7 * span_us) << step;
  }
}

TEST_F(RecordedTest, AGraphsKernelsAreSeenAndShareTheirLaunch) {
  const std::set<uint64_t> launches = CorrelationsOf(HostCall::kLaunchGraph);
  EXPECT_EQ(launches.size(), static_cast<size_t>(Truth("graph_replays")));
  int64_t nodes = 0;
  for (const DeviceOp& op : batch_.ops) {
    if ((op.flags & kFromGraph) == 0) continue;
    ++nodes;
    EXPECT_EQ(launches.count(op.correlation), 1u);
  }
  EXPECT_EQ(nodes, Truth("graph_replays") * Truth("graph_nodes"));
  EXPECT_EQ(stats_.graph_kernels, nodes);
}

TEST_F(RecordedTest, WaitsAllocationsAndLoadsAreCalls) {
  EXPECT_GE(CorrelationsOf(HostCall::kStreamSync).size(), static_cast<size_t>(2 * Truth("steps")));
  // The last thing that it does: as many calls take memory after the last launch of the graph as torch counts.
  const uint64_t last_launch = *CorrelationsOf(HostCall::kLaunchGraph).rbegin();
  const std::set<uint64_t> allocations = CorrelationsOf(HostCall::kAlloc);
  EXPECT_EQ(std::distance(allocations.upper_bound(last_launch), allocations.end()), Truth("last_allocations"));
  const auto loads = [](const CudaCallRecord& call) { return call.call == HostCall::kModuleLoad; };
  EXPECT_GT(std::count_if(batch_.calls.begin(), batch_.calls.end(), loads), 5);
  EXPECT_GT(stats_.own_ns, 300'000);
  EXPECT_LT(stats_.own_ns, 430'000);  // with what CUPTI's own thread does it would be 673 us
}

}  // namespace
}  // namespace trainperf
