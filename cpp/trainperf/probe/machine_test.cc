#include "trainperf/probe/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace trainperf {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

// A /proc and a /sys of its own.
class MachineProbeTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::map<std::string, int64_t> Read(const std::vector<int32_t>& workers = {}) {
    std::vector<Counter> counters;
    probe_.Read(workers, &counters);
    std::map<std::string, int64_t> read;
    for (const Counter& counter : counters) read[counter.name] = counter.so_far;
    EXPECT_EQ(read.size(), counters.size()) << "a name twice";
    return read;
  }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("machine" + std::to_string(getpid()));
  MachineProbe probe_{root_ / "proc", root_ / "sys"};
};

TEST_F(MachineProbeTest, NothingWhereNothingCanBeRead) { EXPECT_THAT(Read(), IsEmpty()); }

TEST_F(MachineProbeTest, HowBusyEachCpuWasSinceTheReadingBefore) {
  // user nice system idle iowait irq softirq steal
  Write("proc/stat",
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0 0 0\n"
        "cpu17 0 0 50 50 0 0 0 0 0 0\nintr 1 2 3\n");
  EXPECT_THAT(Read(), IsEmpty());
  Write("proc/stat",
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 190 10 0 0 0 0 0 0 0 0\ncpu1 0 0 0 190 10 0 0 0 0 0\n"
        "cpu17 10 0 50 100 0 0 30 10 0 0\nintr 1 2 3\n");
  EXPECT_THAT(Read(), ElementsAre(Pair("cpu_levels:0", 0x1f), Pair("cpu_levels:16", 0x80), Pair("irq_levels:0", 0x11),
                                  Pair("irq_levels:16", 0x50)));
}

// Idle time that goes back, a CPU that went offline and counts anew.
TEST_F(MachineProbeTest, ACpuThatDidNotTellIsNotThere) {
  Write("proc/stat", "cpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 100 0 0 0 0 0 0\n");
  Read();
  Write("proc/stat", "cpu0 150 0 0 90 0 0 0 0 0 0\ncpu1 1 0 0 99 0 0 0 0 0 0\n");
  EXPECT_THAT(Read(), ElementsAre(Pair("cpu_levels:0", 0x0f), Pair("irq_levels:0", 0x01)));
  Write("proc/stat", "cpu0 250 0 0 90 0 0 0 0 0 0\n");
  EXPECT_THAT(Read(), ElementsAre(Pair("cpu_levels:0", 0x0f), Pair("irq_levels:0", 0x01)));
}

TEST_F(MachineProbeTest, DisksAndNotWhatLiesOnThem) {
  Write("proc/diskstats",
        " 259 0 nvme0n1 100 0 2000 5 50 0 4000 6 0 77 11\n"
        " 259 1 nvme0n1p1 100 0 2000 5 50 0 4000 6 0 77 11\n"
        " 253 0 dm-0 100 0 2000 5 50 0 4000 6 0 77 11\n"
        "   7 0 loop0 9 0 18 0 0 0 0 0 0 1 1\n"
        "   8 0 sdb 0 0 0 0 0 0 0 0 0 0 0\n"
        "   8 16\n");
  Write("sys/block/nvme0n1/size", "1");
  Write("sys/block/dm-0/slaves/nvme0n1", "");
  Write("sys/block/loop0/size", "1");
  Write("sys/block/sdb/size", "1");
  EXPECT_THAT(Read(), ElementsAre(Pair("disk_busy_ns:nvme0n1", 77'000'000), Pair("disk_read_bytes:nvme0n1", 1'024'000),
                                  Pair("disk_written_bytes:nvme0n1", 2'048'000)));
}

TEST_F(MachineProbeTest, CardsAndNotWhatTheyCarry) {
  Write("proc/net/dev",
        "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
        "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
        "  eth0:100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n"
        "docker0: 50 1 0 0 0 0 0 0 60 1 0 0 0 0 0 0\n");
  Write("sys/class/net/eth0/device/vendor", "0x1af4");
  EXPECT_THAT(Read(), ElementsAre(Pair("net_received_bytes:eth0", 100), Pair("net_sent_bytes:eth0", 200)));
}

TEST_F(MachineProbeTest, TheEndOfATunnelWhereThereIsNoCard) {
  Write("proc/net/dev", "    lo: 9 1 0 0 0 0 0 0 9 1 0\n  eth0: 100 1 0 0 0 0 0 0 200 1 0\n");
  EXPECT_THAT(Read(), ElementsAre(Pair("net_received_bytes:eth0", 100), Pair("net_sent_bytes:eth0", 200)));
}

TEST_F(MachineProbeTest, PressureAndMemory) {
  Write("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=5\n");
  Write("proc/pressure/cpu", "none\n");
  Write("proc/vmstat", "pgmajfault_x 1\npgmajfault 7\npswpin 2\n");
  EXPECT_THAT(Read(), ElementsAre(Pair("major_faults", 7), Pair("psi_io_ns", 12'000),
                                  Pair("swapped_in_bytes", 2 * sysconf(_SC_PAGESIZE))));
}

TEST_F(MachineProbeTest, WorkersThatAreGoneStayCounted) {
  const auto io = [](int read, int written) {
    return "rchar: 1\nread_bytes: " + std::to_string(read) + "\nwrite_bytes: " + std::to_string(written) +
           "\ncancelled_write_bytes: 0\n";
  };
  Write("proc/self/io", io(1000, 1));
  Write("proc/7/io", io(20, 2));
  Write("proc/8/io", io(300, 3));
  EXPECT_THAT(Read({7, 8}), ElementsAre(Pair("own_read_bytes", 1320), Pair("own_written_bytes", 6)));
  Write("proc/7/io", io(30, 2));
  EXPECT_EQ(Read({7})["own_read_bytes"], 1330);
  Write("proc/7/io", io(5, 0));  // the pid of another process now
  EXPECT_EQ(Read({7, 9})["own_read_bytes"], 1335);
}

TEST_F(MachineProbeTest, AMachineWithManyDisksHasSixteen) {
  std::string stats;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "sd" + std::to_string(i);
    stats += " 8 0 " + name + " 1 0 2 5 50 0 4000 6 0 77 11\n";
    Write("sys/block/" + name + "/size", "1");
  }
  Write("proc/diskstats", stats);
  EXPECT_EQ(Read().size(), 3 * MachineProbe::kMaxDevices);
}

TEST(MachineProbe, ReadsThisMachine) {
  std::vector<Counter> counters;
  MachineProbe().Read({static_cast<int32_t>(getpid())}, &counters);
  std::map<std::string, int64_t> read;
  for (const Counter& counter : counters) read[counter.name] = counter.so_far;
  EXPECT_THAT(read, Contains(Key("major_faults")));
  EXPECT_THAT(read, Not(Contains(Key("net_received_bytes:lo"))));
  for (const auto& [name, so_far] : read) EXPECT_GE(so_far, 0) << name;
}

}  // namespace
}  // namespace trainperf
