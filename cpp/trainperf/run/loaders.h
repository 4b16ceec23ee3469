// Tables fetch, fetch_ready, fetch_awaited, worker, worker_state, worker_wait and worker_stack: what the DataLoaders
// and their worker processes did, in sums.

#ifndef TRAINPERF_RUN_LOADERS_H_
#define TRAINPERF_RUN_LOADERS_H_

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "trainperf/run/run_part.h"
#include "trainperf/run/run_writer.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

class Loaders : public RunPart {
 public:
  static constexpr size_t kMaxLoaders = 1024;  // a loop may make one an epoch; the rest are summed as loader 0
  static constexpr size_t kMaxWorkers = 4096;
  static constexpr size_t kMaxWaits = 64;      // system calls of one worker
  static constexpr int kMaxReady = 64;         // this many or more
  static constexpr size_t kMaxAwaited = 1024;  // rows of fetch_awaited of one loader
  static constexpr size_t kMaxStacks = 16384;  // rows of worker_stack; beyond, new stacks are summed as stack 0

  void Add(const FetchRecord& fetch);
  void Add(const WorkerReading& reading);
  void Add(const WorkerLook& look);
  void Add(const WorkerSample& sample);
  void ClearFetches() { fetches_.clear(); }
  // Readings of workers beyond the table.
  int64_t refused_readings() const { return refused_readings_; }

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  struct CountAndTime {
    int64_t count = 0;
    int64_t wall_ns = 0;
    void Add(int64_t ns) {
      ++count;
      wall_ns += ns;
    }
  };
  struct Fetches {
    CountAndTime steady, first, off_thread, validation, exhausted;
    int64_t cpu_ns = 0;
    int64_t gil_wait_ns = 0;
    int64_t max_ns = 0;
    std::array<CountAndTime, kMaxReady + 2> ready;                // from -1
    std::map<std::pair<int32_t, int32_t>, CountAndTime> awaited;  // by worker, and how many read
    bool unwritten = true;
  };
  struct Worker {
    uint32_t loader = 0;
    int32_t pid = 0;
    int64_t first_ns = 0;
    int64_t last_ns = 0;
    int64_t first_cpu_ns = 0;
    int64_t last_cpu_ns = 0;
    int64_t readings = 0;
    int64_t at_work_ns = 0;  // its first reading at work; 0: there is none
    int64_t at_work_cpu_ns = 0;
    std::map<char, int64_t> states;                     // at work
    std::map<std::pair<int64_t, bool>, int64_t> waits;  // by system call, and whether it is shared
    bool unwritten = true;
  };

  struct Samples {
    int64_t count = 0;
    bool unwritten = true;
  };

  std::map<uint32_t, Fetches> fetches_;
  std::map<std::tuple<uint32_t, StackId, SampleState, int32_t>, Samples> stacks_;  // by loader, ..., and system call
  std::vector<Worker> workers_;
  std::map<std::pair<uint32_t, int32_t>, size_t> latest_worker_;  // by loader and pid; pids are used again
  int64_t refused_readings_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_LOADERS_H_
