// Worker processes of DataLoaders, read from /proc until they are gone.
//
//   workers.Watch(loader, pid, NowNs());          // any thread
//   workers.AtWork(loader, NowNs());              // any thread: they have started
//   workers.Read(NowNs(), false, writer);         // at each wake-up of our thread: those that are due, and what others
//   wait for

#ifndef TRAINPERF_COLLECT_LOADER_WORKERS_H_
#define TRAINPERF_COLLECT_LOADER_WORKERS_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "trainperf/collect/cpu_rooms.h"
#include "trainperf/probe/worker_stacks.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

// Thread-safe.
class LoaderWorkers {
 public:
  // `stacks`: where those at work are to be looked at for their stacks; nullptr: nowhere.
  explicit LoaderWorkers(WorkerStacks* stacks = nullptr) : stacks_(stacks) {}
  void Watch(uint32_t loader, int32_t pid, int64_t now_ns);
  // Those that are watched now.
  void AtWork(uint32_t loader, int64_t now_ns);
  // Writes what those are doing that were not read of late, or with `all` each, and what some of those at work wait in;
  // `rooms`: which CPUs they may use.
  void Read(int64_t now_ns, bool all, RunWriter* writer, CpuRooms* rooms = nullptr);
  // Of those that are watched now.
  std::vector<int32_t> Pids();

 private:
  static constexpr size_t kLooks = 16;  // at a wake-up: they take turns

  struct Worker {
    uint32_t loader;
    int32_t pid;
    int64_t since_ns;
    int64_t due_ns;
    bool at_work;
    int tries = 0;  // to have its stack read
    int64_t age_ns(int64_t now_ns) const { return now_ns - since_ns; }
  };

  void WatchStacks(RunWriter* writer);

  WorkerStacks* const stacks_;
  bool stacks_known_ = false;  // whether they can be read
  std::mutex mutex_;           // never held while /proc is read: Watch() is called with the GIL held
  std::vector<Worker> workers_;
  size_t next_look_ = 0;  // of workers_
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_LOADER_WORKERS_H_
