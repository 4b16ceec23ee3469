#include "trainperf/probe/cuda/driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "trainperf/probe/cuda/fake_for_test.h"

namespace trainperf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class DriverTest : public testing::Test {
 protected:
  void SetUp() override { Fake::LoadDriver(); }
  void TearDown() override {
    Cuda(0, 0);
    std::filesystem::remove_all(sys_);
  }
  static void Cuda(int initialised, int context) {
    void* const driver = dlopen(TRAINPERF_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    reinterpret_cast<void (*)(int, int)>(dlsym(driver, "fakecuda_set"))(initialised, context);
  }
  std::string NodeOfDevice1(const std::string& text) {
    const auto folder = sys_ / "bus/pci/devices/0000:08:00.0";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "numa_node") << text;
    return CudaDriver::FindLoaded()->DescribeDevice(1, sys_);
  }

  const std::filesystem::path sys_ = std::filesystem::path(testing::TempDir()) / ("sys" + std::to_string(getpid()));
};

TEST_F(DriverTest, DevicesInUseAreThoseWithAContext) {
  const auto driver = CudaDriver::FindLoaded();
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_THAT(driver->InUse(), IsEmpty());
  EXPECT_EQ(driver->PciBusId(0), "");
  Cuda(1, 1);
  EXPECT_THAT(driver->InUse(), ElementsAre(0, 1));
  EXPECT_EQ(driver->PciBusId(1), "0000:08:00.0");
}

TEST_F(DriverTest, TheNodeThatADeviceIsOn) {
  Cuda(1, 1);
  EXPECT_THAT(NodeOfDevice1("1\n"), HasSubstr(", \"numa_node\": 1,"));
  EXPECT_THAT(NodeOfDevice1("-1\n"), Not(HasSubstr("numa_node")));
  std::filesystem::remove_all(sys_);
  EXPECT_THAT(CudaDriver::FindLoaded()->DescribeDevice(1, sys_), Not(HasSubstr("numa_node")));
}

}  // namespace
}  // namespace trainperf
