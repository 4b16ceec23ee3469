// The tables of devices: what goes in comes out, however the rows merge and the file fares.

#include <memory>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "trainperf/run/run_test_util.h"

namespace trainperf {
namespace {

// Steps with a device, whose second one comes into use halfway.
class DeviceRun {
 public:
  explicit DeviceRun(NameTable* names) : names_(names) {}

  StepRecord Step(bool second) {
    StepRecord step = run_.Step();
    step.feeds_device = true;
    for (uint32_t id = 0; id < (second ? 2u : 1u); ++id) step.devices.push_back(Device(step, id));
    step.calls.push_back({1, HostCall::kStreamSync, 2, 0, 100, 60});
    if (random_() % 2 == 0) step.calls.push_back({2, HostCall::kAlloc, 1, 1, 10, 10});
    return step;
  }

  int64_t busy_ns = 0;
  int64_t kernel_ns = 0;
  int64_t syncs = 0;

 private:
  DeviceStep Device(const StepRecord& step, uint32_t id) {
    DeviceStep d{};
    d.device = id;
    const int64_t wall_ns = step.end_ns - step.start_ns;
    d.busy_ns = wall_ns / 3;
    d.idle_ns[static_cast<int>(Cause::kDataWait)] = wall_ns / 4;
    d.idle_ns[static_cast<int>(Cause::kUnknown)] = wall_ns - wall_ns / 3 - wall_ns / 4;
    d.kernels = 2;
    d.first_kernel_ns = 7;
    d.lead_ns_median = 9000 + id;
    for (int i = 0; i < 2; ++i) {
      const uint32_t name = names_->Intern("kernel_" + std::to_string(random_() % 700));
      d.kernel_sums.push_back({name, 1, 1000 + name, 1000 + name, 1});
      if (id == 0) kernel_ns += 1000 + name;
    }
    d.copy_sums.push_back(
        {CopyDirection::kHostToDevice, MemoryKind::kPageable, MemoryKind::kDevice, 1, 4096, 50, 20, 0});
    d.segments = {{step.start_ns, step.end_ns, DeviceActivity::kIdle, Cause::kDataWait, 0}};
    if (id == 0) busy_ns += d.busy_ns;
    return d;
  }

  NameTable* const names_;
  RandomRun run_{7};
  std::mt19937 random_{3};
};

TEST(DeviceRows, SumsSurviveMerging) {
  const TestFolder folder;
  const std::string path = folder / "a.tpr";
  NameTable names(1000);
  DeviceRun run(&names);
  RunWriterOptions options;
  options.max_step_rows = 64;
  {
    auto writer = *RunWriter::Create(path, options);
    writer->SetNames(&names);
    writer->SetDevice(0, "NVIDIA H200", R"({"memory": 1})");
    writer->SetDevice(5, "one that does nothing", "{}");
    for (int i = 0; i < 1000; ++i) {
      writer->OnStep(run.Step(i >= 500));
      if (i % 37 == 0) {
        ASSERT_TRUE(writer->Commit().ok());
      }
    }
    ASSERT_TRUE(writer->Finish("normally").ok());
  }
  EXPECT_EQ(Scalar(path, "SELECT id || name || description || lead_ns_median FROM device"),
            "0NVIDIA H200{\"memory\": 1}9000");
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM device"), 2);
  EXPECT_EQ(Number(path, "SELECT SUM(busy_ns) FROM device_step WHERE device = 0"), run.busy_ns);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM device_step WHERE device = 0"),
            Number(path, "SELECT COUNT(*) FROM step"));
  // In the rows of the steps, and of their length.
  EXPECT_EQ(Number(path,
                   "SELECT COUNT(*) FROM device_step JOIN step USING (first_step) WHERE device = 0 AND "
                   "device_step.wall_ns = step.wall_ns"),
            Number(path, "SELECT COUNT(*) FROM step"));
  EXPECT_EQ(Number(path, "SELECT SUM(first_kernels) FROM device_step WHERE device = 1"), 500);
  EXPECT_EQ(Number(path, "SELECT SUM(ns) FROM device_kernel WHERE device = 0"), run.kernel_ns);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM device_kernel WHERE device = 0"), 513);
  EXPECT_GT(Number(path, "SELECT folded FROM device_kernel WHERE device = 0 AND name = '(other)'"), 50);
  EXPECT_EQ(Scalar(path, "SELECT direction || src || dst || count || exposed_ns FROM device_copy WHERE device = 0"),
            "h2dpageabledevice100020000");
  EXPECT_EQ(Scalar(path, "SELECT count || ' ' || max_ns || ' ' || steps FROM call WHERE call = 'stream_sync'"),
            "2000 60 1000");
  EXPECT_EQ(Number(path, "SELECT SUM(failed) FROM call WHERE call = 'alloc' AND thread = 2"),
            Number(path, "SELECT SUM(steps) FROM call WHERE call = 'alloc'"));
  EXPECT_EQ(Number(path, "SELECT COUNT(DISTINCT step) FROM device_segment"),
            Number(path, "SELECT COUNT(*) FROM kept_step"));
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM device_segment WHERE cause <> 'data_wait'"), 0);
}

TEST(DeviceRows, OfAnUntracedStepOnlyItsTimeIsWritten) {
  const TestFolder folder;
  const std::string path = folder / "a.tpr";
  NameTable names(1000);
  DeviceRun run(&names);
  RunWriterOptions options;
  options.max_step_rows = 8;
  auto writer = *RunWriter::Create(path, options);
  for (int i = 0; i < 50; ++i) {
    StepRecord step = run.Step(false);
    if (i % 5 != 0) {
      const uint32_t device = step.devices[0].device;
      step.devices[0] = DeviceStep{};
      step.devices[0].device = device;
      step.devices[0].untraced = true;
    }
    writer->OnStep(step);
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Number(path, "SELECT SUM(untraced) FROM device_step WHERE device = 0"), 40);
  EXPECT_EQ(Number(path, "SELECT SUM(untraced_ns) + SUM(wall_ns) FROM device_step WHERE device = 0"),
            Number(path, "SELECT SUM(wall_ns) FROM step"));
  EXPECT_EQ(Number(path, "SELECT steps_traced FROM device_use WHERE device = 0"), 10);
}

TEST(DeviceRows, ARunThatStartsAtAnyNumber) {
  const TestFolder folder;
  const std::string path = folder / "a.tpr";
  NameTable names(1000);
  DeviceRun run(&names);
  RunWriterOptions options;
  options.max_step_rows = 8;
  auto writer = *RunWriter::Create(path, options);
  for (int i = 0; i < 50; ++i) {
    StepRecord step = run.Step(false);
    step.index += 1000;
    writer->OnStep(step);
  }
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Number(path, "SELECT MIN(first_step) FROM step"), 1000);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM device_step JOIN step USING (first_step)"),
            Number(path, "SELECT COUNT(*) FROM step"));
  EXPECT_EQ(Number(path, "SELECT MIN(first_step) FROM section"), 1000);
  EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM section"), 50);
}

TEST(DeviceRows, NativeTimeIsLaunchFromTheFirstStepOn) {
  for (const bool by_meta : {false, true}) {
    const TestFolder folder;
    const std::string path = folder / "a.tpr";
    auto writer = *RunWriter::Create(path, {});
    writer->SetMeta("feeds_device", "0");
    StepRecord step{};
    int64_t native_ns = 0;
    for (int i = 0; i < 20; ++i) {
      step.index = i;
      step.start_ns = step.end_ns;
      step.end_ns += 1000 + i;
      step.ns[static_cast<int>(Phase::kForward)][static_cast<int>(Mechanism::kNative)] = 1000 + i;
      native_ns += 1000 + i;
      if (i == 10) {
        ASSERT_TRUE(writer->Commit().ok());
      }
      if (i == 12 && by_meta) writer->SetMeta("feeds_device", "1");
      step.feeds_device = i >= 12 && !by_meta;
      writer->OnStep(step);
    }
    writer->SetMeta("feeds_device", "0");
    ASSERT_TRUE(writer->Finish("normally").ok());
    for (const char* table : {"step", "kept_step"}) {
      EXPECT_EQ(Number(path, std::string("SELECT SUM(compute_ns) FROM ") + table), 0);
    }
    EXPECT_EQ(Number(path, "SELECT SUM(launch_ns) FROM step"), native_ns);
    EXPECT_EQ(Scalar(path, "SELECT value FROM meta WHERE key = 'feeds_device'"), "1");
    EXPECT_EQ(Number(path, "SELECT steps FROM cause_share WHERE cause = 'launch' AND percent = 100"), 20);
    EXPECT_EQ(Number(path, "SELECT COUNT(*) FROM cause_share WHERE cause = 'compute'"), 0);
  }
}

TEST(DeviceRows, DetailsOfCallsAreWords) {
  const TestFolder folder;
  const std::string path = folder / "a.tpr";
  auto writer = *RunWriter::Create(path, {});
  Detail call{};
  call.kind = DetailKind::kCall;
  call.code = static_cast<int32_t>(HostCall::kStreamSync);
  call.ns = 5;
  Detail wait{};
  wait.kind = DetailKind::kIdleGilWait;
  wait.thread = 9;
  wait.code = 1;
  for (const Detail& detail : {call, call, wait}) writer->OnDetail(detail);
  StepRecord step{};
  writer->OnStep(step);
  ASSERT_TRUE(writer->Finish("normally").ok());
  EXPECT_EQ(Scalar(path, "SELECT state || ns || count || code FROM detail WHERE kind = 'call'"), "stream_sync1000");
  EXPECT_EQ(Scalar(path, "SELECT thread || ' ' || code FROM detail WHERE kind = 'idle_gil_wait'"), "9 1");
}

}  // namespace
}  // namespace trainperf
