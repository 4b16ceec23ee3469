#include "trainperf/probe/host.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

// At most 64 KiB; "" when the file cannot be read.
std::string Slurp(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text(65536, '\0');
  size_t used = 0;
  for (ssize_t n; used < text.size() && (n = read(fd, &text[used], text.size() - used)) > 0;) used += n;
  close(fd);
  text.resize(used);
  return text;
}

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

// Candidates for this process' cpu.stat, innermost first: cgroup v2 and v1 as systemd and Docker mount them.
std::vector<std::string> CpuStatPaths() {
  std::vector<std::string> paths;
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
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      paths.push_back("/sys/fs/cgroup" + group + "/cpu.stat");
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      paths.push_back("/sys/fs/cgroup/cpu" + group + "/cpu.stat");
      paths.push_back("/sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.stat");
    }
  }
  paths.push_back("/sys/fs/cgroup/cpu.stat");  // inside a container the group's own path may not be mounted
  paths.push_back("/sys/fs/cgroup/cpu/cpu.stat");
  return paths;
}

}  // namespace

HostProbe::HostProbe(const std::string& cpu_stat) {
  const std::vector<std::string> paths = cpu_stat.empty() ? CpuStatPaths() : std::vector<std::string>{cpu_stat};
  for (const std::string& path : paths) {
    const std::string text = Slurp(path.c_str());
    const bool v2 = NumberAfter(text, "throttled_usec ") >= 0;
    const bool v1 = NumberAfter(text, "throttled_time ") >= 0;
    if (!v1 && !v2) continue;
    cpu_stat_fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (cpu_stat_fd_ < 0) continue;
    cpu_stat_is_v1_ = v1;
    return;
  }
  throttled_why_ = "no cgroup CPU controller on this process";
}

HostProbe::~HostProbe() {
  if (cpu_stat_fd_ >= 0) close(cpu_stat_fd_);
}

int64_t HostProbe::ReadThrottledNs() const {
  if (cpu_stat_fd_ < 0) return -1;
  char buffer[1024];
  const ssize_t size = pread(cpu_stat_fd_, buffer, sizeof(buffer), 0);
  if (size <= 0) return -1;
  const std::string text(buffer, size);
  if (cpu_stat_is_v1_) return NumberAfter(text, "throttled_time ");
  const int64_t us = NumberAfter(text, "throttled_usec ");
  return us < 0 ? -1 : us * 1000;
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
  const int64_t rss_kib = NumberAfter(status, "VmRSS:");
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
  long long user, system;
  if (sscanf(text.c_str() + name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &facts.state, &user,
             &system) != 3) {
    return facts;
  }
  facts.alive = facts.state != 'Z' && facts.state != 'X';
  facts.cpu_ns = TicksToNs(user + system);
  return facts;
}

std::string ReadThreadComm(int32_t native_tid) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/comm", native_tid);
  std::string name = Slurp(path);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace trainperf
