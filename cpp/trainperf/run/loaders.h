// Tables fetch, fetch_ready, worker and worker_state: what the DataLoaders and their worker processes did, in sums.

#ifndef TRAINPERF_RUN_LOADERS_H_
#define TRAINPERF_RUN_LOADERS_H_

#include <array>
#include <cstdint>
#include <map>
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
  static constexpr int kMaxReady = 64;  // this many or more

  void Add(const FetchRecord& fetch);
  void Add(const WorkerReading& reading);
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
    std::array<CountAndTime, kMaxReady + 2> ready;  // from -1
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
    CountAndTime awaited;  // steady fetches that waited for it alone
    CountAndTime last;     // of these, as the others had read their parts
    std::map<char, int64_t> states;
    bool unwritten = true;
  };

  // The latest of that pid; a new one where there is none. nullptr: the table is full.
  Worker* LatestWorker(uint32_t loader, int32_t pid);

  std::map<uint32_t, Fetches> fetches_;
  std::vector<Worker> workers_;
  std::map<std::pair<uint32_t, int32_t>, size_t> latest_worker_;  // by loader and pid; pids are used again
  int64_t refused_readings_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_LOADERS_H_
