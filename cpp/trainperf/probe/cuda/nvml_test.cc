#include "trainperf/probe/cuda/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "trainperf/probe/cuda/fake_for_test.h"

namespace trainperf {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

constexpr int kNotSupported = 3, kNoPermission = 4, kDriverNotLoaded = 9, kGpuLost = 15;

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    Fake::LoadDriver();
    nvml_ = dlopen(TRAINPERF_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nvml_, nullptr) << dlerror();
    Cuda(1, 1);
    for (const char* what : {"init", "handle"}) Set(what, 0, 0);
    Set("busy", 0, 93);
    Set("sm", 0, 1200);
    Set("sm_max", 0, 1980);
    Set("memory", 0, 2619);
    Set("power", 0, 700'000);
    Set("power_limit", 0, 700'000);
    Set("used", 0, 5'000'000'000);
    Set("celsius", 0, 71);
    Set("reasons", 0, 4);
  }
  void TearDown() override {
    Cuda(0, 0);
    Control<void(int)>("fakenvml_slow")(0);
  }

  template <typename Function>
  Function* Control(const char* name) {
    return reinterpret_cast<Function*>(dlsym(nvml_, name));
  }
  void Set(const char* what, int code, uint64_t value) {
    Control<void(const char*, int, uint64_t)>("fakenvml_set")(what, code, value);
  }
  int Begun() { return Control<int()>("fakenvml_begun")(); }
  static void Cuda(int initialised, int context) {
    void* const driver = dlopen(TRAINPERF_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    reinterpret_cast<void (*)(int, int)>(dlsym(driver, "fakecuda_set"))(initialised, context);
  }

  static std::map<std::string, int64_t> Read(NvmlProbe* probe) {
    std::vector<Counter> counters;
    probe->Read(&counters);
    std::map<std::string, int64_t> read;
    for (const Counter& counter : counters) read[counter.name] = counter.so_far;
    EXPECT_EQ(read.size(), counters.size()) << "a name twice";
    return read;
  }

  void* nvml_ = nullptr;
};

TEST_F(NvmlTest, EachGpuThatIsInUse) {
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  const auto read = Read(&probe);
  EXPECT_THAT(read, SizeIs(18));  // of two
  for (const char* gpu : {":0", ":1"}) {
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_busy_percent") + gpu, 93)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_sm_mhz") + gpu, 1200)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_sm_max_mhz") + gpu, 1980)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_memory_mhz") + gpu, 2619)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_power_mw") + gpu, 700'000)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_power_limit_mw") + gpu, 700'000)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_memory_bytes") + gpu, 5'000'000'000)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_celsius") + gpu, 71)));
    EXPECT_THAT(read, Contains(Pair(std::string("gpu_throttle_reasons") + gpu, 4)));
  }
  EXPECT_EQ(probe.tier(), "nvml");
  EXPECT_EQ(probe.why(), "");
}

TEST_F(NvmlTest, NothingBeforeTheProgramUsesAGpu) {
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  for (const int initialised : {0, 1}) {
    Cuda(initialised, 0);
    EXPECT_THAT(Read(&probe), IsEmpty());
    EXPECT_EQ(probe.tier(), "");
    EXPECT_EQ(Begun(), 0);
  }
  Cuda(1, 1);
  EXPECT_THAT(Read(&probe), Not(IsEmpty()));
}

TEST_F(NvmlTest, EndsWhatItBegan) {
  {
    NvmlProbe probe(TRAINPERF_FAKE_NVML);
    Read(&probe);
    EXPECT_EQ(Begun(), 1);
  }
  EXPECT_EQ(Begun(), 0);
}

TEST_F(NvmlTest, OffWithoutALibrary) {
  NvmlProbe probe("libno-such-nvml.so.1");
  EXPECT_THAT(Read(&probe), IsEmpty());
  EXPECT_EQ(probe.tier(), "off");
  EXPECT_EQ(probe.why(), "no libnvidia-ml.so.1, which comes with the driver");
}

TEST_F(NvmlTest, OffWhereItCannotBegin) {
  Set("init", kDriverNotLoaded, 0);
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  EXPECT_THAT(Read(&probe), IsEmpty());
  EXPECT_EQ(probe.tier(), "off");
  EXPECT_EQ(probe.why(), "Driver Not Loaded");
  EXPECT_EQ(Begun(), 0);
}

TEST_F(NvmlTest, OffWhereNoGpuMayBeRead) {
  Set("handle", kNoPermission, 0);
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  EXPECT_THAT(Read(&probe), IsEmpty());
  EXPECT_EQ(probe.tier(), "off");
  EXPECT_EQ(probe.why(), "GPU 0: Insufficient Permissions; GPU 1: Insufficient Permissions");
  EXPECT_EQ(Begun(), 0);
}

// As a GPU that is divided (MIG) has no utilization.
TEST_F(NvmlTest, WhatAGpuDoesNotTellIsLeftOut) {
  Set("busy", kNotSupported, 0);
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  const auto read = Read(&probe);
  EXPECT_THAT(read, SizeIs(16));
  EXPECT_THAT(read, Not(Contains(Key("gpu_busy_percent:0"))));
  EXPECT_EQ(probe.tier(), "nvml");
  EXPECT_EQ(probe.why(), "gpu_busy_percent: Not Supported");
}

TEST_F(NvmlTest, OffOnceTheGpuIsLost) {
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  EXPECT_THAT(Read(&probe), SizeIs(18));
  Set("busy", kGpuLost, 0);
  EXPECT_THAT(Read(&probe), IsEmpty());
  EXPECT_EQ(probe.tier(), "off");
  EXPECT_THAT(probe.why(), HasSubstr("GPU is lost"));
  EXPECT_EQ(Begun(), 0);
  Set("busy", 0, 50);
  EXPECT_THAT(Read(&probe), IsEmpty());
}

TEST_F(NvmlTest, OffWhereReadingTakesLong) {
  Control<void(int)>("fakenvml_slow")(NvmlProbe::kMostNs / 1000 + 1000);
  NvmlProbe probe(TRAINPERF_FAKE_NVML);
  for (int i = 0; i < NvmlProbe::kMostSlow; ++i) {
    EXPECT_NE(probe.tier(), "off");
    Read(&probe);
  }
  EXPECT_EQ(probe.tier(), "off");
  EXPECT_EQ(probe.why(), "a reading took longer than 20 ms");
}

}  // namespace
}  // namespace trainperf
