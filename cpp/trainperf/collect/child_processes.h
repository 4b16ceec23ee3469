// Processes that this one started, and those that they started, beside the workers of its DataLoaders: a Pool's, an
// encoder's, an actor's. What CPU time they use, and where those of Python are.
//
//   children.Read(NowNs(), last, workers.Pids(), writer); // our thread, each second; looks when it is due
//   for (int32_t pid : children.Unnamed()) ...            // any thread: who can tell names is asked for them
//   children.Name(pid, "ForkPoolWorker-1");               // any thread
//
// A process is written to the run once it has a name or was seen to compute: helpers such as multiprocessing's resource
// tracker never are.

#ifndef TRAINPERF_COLLECT_CHILD_PROCESSES_H_
#define TRAINPERF_COLLECT_CHILD_PROCESSES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "trainperf/probe/host.h"
#include "trainperf/probe/worker_stacks.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

class ChildProcesses {
 public:
  static constexpr size_t kMost = 256;           // at a time; others are not seen
  static constexpr size_t kMostRecorded = 1024;  // of the run
  static constexpr double kComputes = 0.05;      // of a CPU, between two looks

  // `stacks`: where they are to be looked at for their stacks; nullptr: nowhere.
  explicit ChildProcesses(WorkerStacks* stacks = nullptr) : stacks_(stacks) {}

  // `last`: a look is made, due or not. `workers`: pids of the DataLoader workers that live.
  void Read(int64_t now_ns, bool last, const std::vector<int32_t>& workers, RunWriter* writer);
  // Those that live, have no name yet, and were not asked for too often. Thread-safe.
  std::vector<int32_t> Unnamed();
  void Name(int32_t pid, const std::string& name);  // Thread-safe.

 private:
  struct Child {
    int64_t start_ticks;  // with the pid, who it is
    int64_t first_ns, first_cpu_ns;
    int64_t last_ns, last_cpu_ns;
    uint32_t id = 0;  // in the run; 0: not written there
    std::string command, name;
    bool computed = false;  // at some look
    bool ended = false;     // and nobody has waited for it yet
    int tries = 0;          // to have its stack read
    int asked = 0;          // for its name
  };

  void See(int32_t pid, int64_t now_ns, const ProcessFacts& facts);
  void Record(int32_t pid, Child* child, RunWriter* writer);
  void LookAtStack(int32_t pid, Child* child, RunWriter* writer);

  WorkerStacks* const stacks_;
  bool begun_ = false;
  int64_t due_ns_ = 0;
  int64_t stacks_due_ns_ = 0;  // to look for those of Python: a hundred times dearer
  uint32_t recorded_ = 0;
  std::string stacks_tier_;
  std::mutex mutex_;                   // never held while /proc is read: the others are called with the GIL held
  std::map<int32_t, Child> children_;  // that live, by pid
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_CHILD_PROCESSES_H_
