// Where the main threads of DataLoader workers and other child processes are, and whether they run or wait: two at a
// time, in turns.
//
//   WorkerStacks stacks;
//   stacks.Add({loader}, pid);                   // the collector's thread
//   stacks.Look(NowNs());                        // the sampler's thread, at each of its looks
//   stacks.Drain([](const WorkerSample& s) { ... });
//
// By reads of the worker's memory and of /proc: the worker is not stopped. Look() takes 0.2 % of a core at most, and
// goes without a look rather than wait for the collector.

#ifndef TRAINPERF_PROBE_WORKER_STACKS_H_
#define TRAINPERF_PROBE_WORKER_STACKS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainperf/base/spsc_ring.h"
#include "trainperf/cpython/child_stack.h"
#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/event/worker_sample.h"

namespace trainperf {

class WorkerStacks {
 public:
  static constexpr size_t kMost = 32;      // processes at a time; others are not looked at
  static constexpr size_t kChildren = 16;  // of these, so many that are no workers
  static constexpr double kShare = 0.002;

  // `gil`: as the sampler found it; nullptr: there is none to be seen. From now on workers can be looked at.
  void Begin(const GilView* gil);

  // The collector's thread. NotFound: it has ended, or has no main thread yet. PermissionDenied, Unimplemented: no
  // worker can be looked at here.
  absl::Status Add(WorkerOf of, int32_t pid);
  void Remove(int32_t pid);
  template <typename Visitor>
  size_t Drain(Visitor&& visit) {
    return ring_.Drain(visit);
  }

  // The sampler's thread. The CPU time that it took.
  int64_t Look(int64_t now_ns);

  uint64_t dropped() const { return ring_.dropped(); }

 private:
  struct Watched {
    WorkerOf of;
    int32_t pid;
    int syscall_fd;
    std::unique_ptr<ChildStack> stack;
    ~Watched();
  };

  bool Read(Watched* worker, WorkerSample* sample);

  std::atomic<bool> begun_{false};
  std::unique_ptr<GilView> gil_;  // set before begun_
  SpscRing<WorkerSample> ring_{4096};

  std::mutex mutex_;  // of the collector's and the sampler's threads: neither holds the GIL
  std::vector<std::unique_ptr<Watched>> workers_;
  // The sampler's thread.
  CodeCache codes_;
  size_t next_ = 0;
  int64_t first_ns_ = 0;
  int64_t spent_ns_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_WORKER_STACKS_H_
