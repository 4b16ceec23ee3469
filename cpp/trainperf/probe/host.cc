#include "trainperf/probe/host.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/base/proc_text.h"

namespace trainperf {
namespace {

int64_t TicksToNs(int64_t ticks) {
  static const int64_t ns_per_tick = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  return ticks * ns_per_tick;
}

// The number that follows `key` at the start of a line; -1 when there is none.
int64_t NumberAfter(const std::string& text, const char* key) {
  const size_t length = strlen(key);
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, length, key) == 0) return strtoll(text.c_str() + at + length, nullptr, 10);
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return -1;
}

// The folders of this process' CPU cgroup, innermost first, for cgroup v2 and v1 as systemd and Docker mount them: of
// each line of /proc/self/cgroup, the group and its parents. Inside a container the group's own path may not be
// mounted, but what stands for the root there is.
std::vector<std::vector<std::string>> CpuStatPaths() {
  std::vector<std::vector<std::string>> hierarchies;
  const std::string cgroups = Slurp("/proc/self/cgroup");
  for (size_t at = 0; at < cgroups.size();) {
    size_t end = cgroups.find('\n', at);
    if (end == std::string::npos) end = cgroups.size();
    const std::string line = cgroups.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::vector<std::string> roots;
    if (controllers.empty()) {
      roots = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      roots = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    }
    for (const std::string& root : roots) {
      std::vector<std::string> paths;
      std::string group = line.substr(second + 1);
      if (group == "/") group.clear();
      for (;;) {
        paths.push_back(root + group + "/cpu.stat");
        if (group.empty()) break;
        group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
      }
      hierarchies.push_back(std::move(paths));
    }
  }
  return hierarchies;
}

}  // namespace

bool HostProbe::Open(const std::string& path) {
  const std::string text = Slurp(path.c_str());
  const bool v1 = NumberAfter(text, "throttled_time ") >= 0;
  if (!v1 && NumberAfter(text, "throttled_usec ") < 0) return false;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const std::string quota = path.substr(0, path.rfind('/') + 1) + "cpu.max";
  cpu_stats_.push_back({fd, v1, open(quota.c_str(), O_RDONLY | O_CLOEXEC)});
  return true;
}

HostProbe::HostProbe(const std::vector<std::string>& cpu_stats) {
  const auto hierarchies = cpu_stats.empty() ? CpuStatPaths() : std::vector<std::vector<std::string>>{cpu_stats};
  for (const std::vector<std::string>& paths : hierarchies) {
    for (const std::string& path : paths) Open(path);
    if (!cpu_stats_.empty()) return;
  }
  throttled_why_ = "no cgroup CPU controller on this process";
}

HostProbe::~HostProbe() {
  for (const CpuStat& stat : cpu_stats_) {
    close(stat.fd);
    if (stat.quota_fd >= 0) close(stat.quota_fd);
  }
}

int64_t HostProbe::ReadThrottledNs() const {
  if (cpu_stats_.empty()) return -1;
  int64_t sum_ns = 0;
  for (const CpuStat& stat : cpu_stats_) {
    char buffer[1024];
    const ssize_t size = pread(stat.fd, buffer, sizeof(buffer), 0);
    if (size <= 0) continue;  // the group is gone
    const std::string text(buffer, static_cast<size_t>(size));
    const int64_t value = NumberAfter(text, stat.v1 ? "throttled_time " : "throttled_usec ");
    if (value > 0) sum_ns += stat.v1 ? value : value * 1000;
  }
  return sum_ns;
}

int64_t HostProbe::ReadQuotaMilli() const {
  int64_t least = -1;
  for (const CpuStat& stat : cpu_stats_) {
    char buffer[64];
    const ssize_t size = stat.quota_fd < 0 ? -1 : pread(stat.quota_fd, buffer, sizeof(buffer) - 1, 0);
    if (size <= 0) continue;
    buffer[size] = '\0';
    long long quota = 0, period = 0;
    if (sscanf(buffer, "%lld %lld", &quota, &period) != 2 || period <= 0) continue;  // "max 100000"
    const int64_t milli = quota * 1000 / period;
    if (least < 0 || milli < least) least = milli;
  }
  return least;
}

HostFacts HostProbe::Read() const {
  HostFacts facts;
  facts.process_cpu_ns = ReadClockNs(CLOCK_PROCESS_CPUTIME_ID);

  const std::string stat = Slurp("/proc/stat");
  long long user, nice, system, idle, iowait, irq, softirq, steal;
  if (sscanf(stat.c_str(), "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &iowait, &irq,
             &softirq, &steal) == 8) {
    facts.machine_busy_ns = TicksToNs(user + nice + system + irq + softirq + steal);
    facts.machine_idle_ns = TicksToNs(idle + iowait);
  }
  const std::string status = Slurp("/proc/self/status");
  facts.threads = static_cast<int32_t>(NumberAfter(status, "Threads:"));
  // Pages of mapped files come and go as they are read: a data set in one would look like a leak.
  const int64_t own_kib = NumberAfter(status, "RssAnon:");
  const int64_t rss_kib = own_kib < 0 ? NumberAfter(status, "VmRSS:")  // before Linux 4.5
                                      : own_kib + std::max<int64_t>(0, NumberAfter(status, "RssShmem:"));
  facts.rss_bytes = rss_kib < 0 ? -1 : rss_kib * 1024;
  int runnable = -1;
  if (sscanf(Slurp("/proc/loadavg").c_str(), "%*f %*f %*f %d/", &runnable) != 1) runnable = -1;
  facts.runnable = runnable;
  return facts;
}

ProcessFacts ReadProcess(int32_t pid) {
  ProcessFacts facts;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const std::string text = Slurp(path);
  const size_t name_end = text.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) return facts;
  long long user, system, start;
  if (sscanf(text.c_str() + name_end + 1,
             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %*d %*d %*d %*d %*d %*d %lld", &facts.state, &user,
             &system, &start) != 4) {
    return facts;
  }
  facts.alive = facts.state != 'Z' && facts.state != 'X';
  facts.cpu_ns = TicksToNs(user + system);
  facts.start_ticks = start;
  facts.age_ns = std::max(int64_t{0}, ReadClockNs(CLOCK_BOOTTIME) - TicksToNs(start));
  return facts;
}

ProcessWait ReadProcessWait(int32_t pid) {
  ProcessWait wait;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
  const std::string text = Slurp(path);  // "running", "-1 sp pc", or "nr arg0 .. arg5 sp pc"
  if (text.empty()) return wait;
  wait.known = true;
  long long number = -1;
  unsigned long long operation = 0;
  const int read = sscanf(text.c_str(), "%lld %*x %llx", &number, &operation);
  if (read < 1) return wait;
  wait.syscall = number;
  wait.shared = read == 2 && number == SYS_futex && (operation & FUTEX_PRIVATE_FLAG) == 0;
  return wait;
}

std::string ReadThreadComm(int32_t native_tid) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/comm", native_tid);
  std::string name = Slurp(path);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace trainperf
