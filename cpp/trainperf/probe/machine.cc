#include "trainperf/probe/machine.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "trainperf/base/proc_text.h"

namespace trainperf {
namespace {

constexpr int64_t kSectorBytes = 512;  // of /proc/diskstats, whatever the disk's own are

// The number after `key`, which starts a line; -1: there is none.
int64_t Number(absl::string_view text, absl::string_view key) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t value = 0;
    if (absl::StartsWith(line, key) && absl::SimpleAtoi(absl::StripAsciiWhitespace(line.substr(key.size())), &value)) {
      return value;
    }
  }
  return -1;
}

// Fields of a line that are numbers; 0 where one is not.
int64_t Field(const std::vector<absl::string_view>& fields, size_t i) {
  int64_t value = 0;
  return i < fields.size() && absl::SimpleAtoi(fields[i], &value) ? value : 0;
}

// Whether a folder is there and holds something.
bool HasEntries(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(folder)) found |= entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

}  // namespace

MachineProbe::MachineProbe(std::string proc, std::string sys) : proc_(std::move(proc)), sys_(std::move(sys)) {}

bool MachineProbe::Exists(const std::string& path) const { return access(path.c_str(), F_OK) == 0; }

void MachineProbe::Read(const std::vector<int32_t>& workers, std::vector<Counter>* counters) {
  counters->clear();
  ReadCpus(counters);
  ReadDisks(counters);
  ReadNetworks(counters);
  for (const char* resource : {"cpu", "memory", "io"}) ReadPressure(resource, counters);
  ReadMemory(counters);
  ReadOwn(workers, counters);
}

void MachineProbe::ReadCpus(std::vector<Counter>* counters) {
  constexpr size_t kBits = 4, kInEach = 64 / kBits;
  const std::string text = Slurp((proc_ + "/stat").c_str());
  std::vector<uint64_t> busy, interrupts;
  const auto put = [&](std::vector<uint64_t>* words, size_t cpu, int64_t ticks, int64_t of) {
    words->resize(std::max(words->size(), cpu / kInEach + 1));
    const auto level = static_cast<uint64_t>(1 + (14 * ticks + of / 2) / of);
    (*words)[cpu / kInEach] |= level << (kBits * (cpu % kInEach));
  };
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "cpu")) break;  // what comes then are interrupts, and long
    // cpu0 user nice system idle iowait irq softirq steal
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    size_t cpu = 0;
    if (fields.size() < 9 || !absl::SimpleAtoi(fields[0].substr(3), &cpu) || cpu >= kMaxCpus) continue;
    const int64_t irq = Field(fields, 6) + Field(fields, 7), idle = Field(fields, 4) + Field(fields, 5);
    const int64_t work = Field(fields, 1) + Field(fields, 2) + Field(fields, 3) + irq + Field(fields, 8);
    const CpuTicks now{work, irq, work + idle};
    const auto [last, is_new] = cpus_.try_emplace(cpu, now);
    const CpuTicks was = std::exchange(last->second, now);
    // Idle time may go back a little.
    const int64_t of = std::max(now.all - was.all, now.busy - was.busy);
    if (is_new || of <= 0 || now.busy < was.busy || now.interrupts < was.interrupts) continue;
    put(&busy, cpu, now.busy - was.busy, of);
    put(&interrupts, cpu, now.interrupts - was.interrupts, of);
  }
  for (size_t i = 0; i < busy.size(); ++i) {
    counters->push_back({absl::StrCat("cpu_levels:", i * kInEach), static_cast<int64_t>(busy[i])});
    counters->push_back({absl::StrCat("irq_levels:", i * kInEach), static_cast<int64_t>(interrupts[i])});
  }
}

void MachineProbe::ReadDisks(std::vector<Counter>* counters) {
  const std::string text = Slurp((proc_ + "/diskstats").c_str());
  size_t devices = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // major minor name, reads merged sectors ms, writes merged sectors ms, in flight, ms busy
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() < 13 || Field(fields, 3) + Field(fields, 7) == 0) continue;
    const std::string name(fields[2]);
    const auto [known, is_new] = is_disk_.try_emplace(name, false);
    if (is_new) {
      // Not a partition, nor what is made of other disks (LVM, RAID), of a file or of memory.
      const std::string block = absl::StrCat(sys_, "/block/", name);
      known->second = Exists(block) && !HasEntries(block + "/slaves") && !absl::StartsWith(name, "loop") &&
                      !absl::StartsWith(name, "ram") && !absl::StartsWith(name, "zram");
    }
    if (!known->second || ++devices > kMaxDevices) continue;
    counters->push_back({"disk_read_bytes:" + name, Field(fields, 5) * kSectorBytes});
    counters->push_back({"disk_written_bytes:" + name, Field(fields, 9) * kSectorBytes});
    counters->push_back({"disk_busy_ns:" + name, Field(fields, 12) * 1'000'000});
  }
}

void MachineProbe::ReadNetworks(std::vector<Counter>* counters) {
  const std::string text = Slurp((proc_ + "/net/dev").c_str());
  struct Network {
    std::string name;
    int64_t received_bytes, sent_bytes;
  };
  std::vector<Network> networks;
  bool any_card = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, colon)));
    const std::vector<absl::string_view> fields = absl::StrSplit(line.substr(colon + 1), ' ', absl::SkipEmpty());
    if (name == "lo" || fields.size() < 9) continue;
    const auto [known, is_new] = is_card_.try_emplace(name, false);
    if (is_new) known->second = Exists(absl::StrCat(sys_, "/class/net/", name, "/device"));
    any_card |= known->second;
    networks.push_back({name, Field(fields, 0), Field(fields, 8)});
  }
  // Bridges and tunnels carry what a card carries, too. In a container there is no card, only its end of a tunnel.
  size_t devices = 0;
  for (const Network& network : networks) {
    if (any_card && !is_card_[network.name]) continue;
    if (network.received_bytes + network.sent_bytes == 0 || ++devices > kMaxDevices) continue;
    counters->push_back({"net_received_bytes:" + network.name, network.received_bytes});
    counters->push_back({"net_sent_bytes:" + network.name, network.sent_bytes});
  }
}

void MachineProbe::ReadPressure(const char* resource, std::vector<Counter>* counters) const {
  const std::string text = Slurp(absl::StrCat(proc_, "/pressure/", resource).c_str());
  const absl::string_view line = absl::string_view(text).substr(0, text.find('\n'));
  const size_t at = line.find("total=");
  int64_t us = 0;
  if (!absl::StartsWith(line, "some ") || at == absl::string_view::npos ||
      !absl::SimpleAtoi(line.substr(at + 6), &us)) {
    return;
  }
  counters->push_back({absl::StrCat("psi_", resource, "_ns"), us * 1000});
}

void MachineProbe::ReadMemory(std::vector<Counter>* counters) const {
  const std::string text = Slurp((proc_ + "/vmstat").c_str());
  const int64_t page = sysconf(_SC_PAGESIZE);
  const std::pair<const char*, std::pair<const char*, int64_t>> all[] = {{"pgmajfault ", {"major_faults", 1}},
                                                                         {"pswpin ", {"swapped_in_bytes", page}},
                                                                         {"pswpout ", {"swapped_out_bytes", page}}};
  for (const auto& [key, counter] : all) {
    const int64_t value = Number(text, key);
    if (value >= 0) counters->push_back({counter.first, value * counter.second});
  }
}

bool MachineProbe::ReadStorage(const std::string& pid, Storage* storage) const {
  const std::string text = Slurp(absl::StrCat(proc_, "/", pid, "/io").c_str());
  *storage = {Number(text, "read_bytes: "), Number(text, "write_bytes: ")};
  return storage->read_bytes >= 0 && storage->written_bytes >= 0;
}

void MachineProbe::ReadOwn(const std::vector<int32_t>& workers, std::vector<Counter>* counters) {
  Storage own{};
  if (!ReadStorage("self", &own)) return;
  std::map<int32_t, Storage> now;
  for (const int32_t pid : workers) {
    Storage worker{};
    if (!ReadStorage(absl::StrCat(pid), &worker)) continue;
    const auto before = workers_.find(pid);
    const Storage last = before == workers_.end() ? Storage{} : before->second;
    // A pid may come again, and counts from nothing then.
    of_workers_.read_bytes += worker.read_bytes - (worker.read_bytes < last.read_bytes ? 0 : last.read_bytes);
    of_workers_.written_bytes +=
        worker.written_bytes - (worker.written_bytes < last.written_bytes ? 0 : last.written_bytes);
    now[pid] = worker;
  }
  workers_ = std::move(now);
  counters->push_back({"own_read_bytes", own.read_bytes + of_workers_.read_bytes});
  counters->push_back({"own_written_bytes", own.written_bytes + of_workers_.written_bytes});
}

}  // namespace trainperf
