// What the kernel says of this process, its DataLoader workers and the machine. All by /proc and /sys, without
// privileges.
//
//   HostProbe host;
//   HostFacts facts = host.Read();                      // about 40 us; once a second
//   int64_t throttled = host.ReadThrottledNs();         // 2 us; -1 where there is no cgroup CPU controller
//   ProcessFacts worker = ReadProcess(pid);             // 5 us
//   ProcessWait wait = ReadProcessWait(pid);            // 5 us
//
// Used by one thread.

#ifndef TRAINPERF_PROBE_HOST_H_
#define TRAINPERF_PROBE_HOST_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainperf {

struct HostFacts {
  int64_t process_cpu_ns = 0;   // user + system, this process
  int64_t machine_busy_ns = 0;  // all CPUs
  int64_t machine_idle_ns = 0;
  int64_t rss_bytes = 0;  // resident, without mapped files
  int32_t threads = 0;
  int32_t runnable = 0;  // of the machine, this thread included
};

struct ProcessFacts {
  bool alive = false;
  char state = '?';
  int64_t cpu_ns = 0;
  int64_t start_ticks = 0;  // since the machine's start: with the pid, which process it is
  int64_t age_ns = 0;
};

// What the main thread of another process waits in, as /proc/PID/syscall tells: of a child of ours, or a process of the
// same user.
struct ProcessWait {
  bool known = false;
  int64_t syscall = -1;  // -1: it runs, or waits in none, as for a page
  bool shared = false;   // a futex that other processes may wait in too: a semaphore or lock of multiprocessing
};

class HostProbe {
 public:
  // `cpu_stats`: the cpu.stat files of the cgroup and of its parents, which may hold the quota; none: found from
  // /proc/self/cgroup.
  explicit HostProbe(const std::vector<std::string>& cpu_stats = {});
  ~HostProbe();
  HostProbe(const HostProbe&) = delete;
  HostProbe& operator=(const HostProbe&) = delete;

  HostFacts Read() const;
  // Time that quotas took from this process' cgroup and those above it, so far.
  int64_t ReadThrottledNs() const;
  // Thousandths of a CPU that the tightest of their quotas allows (cgroup v2); -1: no quota, or it is not known.
  int64_t ReadQuotaMilli() const;
  // Why ReadThrottledNs() is -1; empty when it is not.
  const std::string& throttled_why() const { return throttled_why_; }

 private:
  struct CpuStat {
    int fd;
    bool v1;       // throttled_time in ns, not throttled_usec
    int quota_fd;  // cpu.max; -1: there is none
  };

  bool Open(const std::string& path);

  std::vector<CpuStat> cpu_stats_;
  std::string throttled_why_;
};

ProcessFacts ReadProcess(int32_t pid);
ProcessWait ReadProcessWait(int32_t pid);
// The kernel's name of a thread of this process; empty when it is gone.
std::string ReadThreadComm(int32_t native_tid);

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_HOST_H_
