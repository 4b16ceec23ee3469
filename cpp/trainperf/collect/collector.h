// A running watch: starts the probes, and moves their events through the timeline into the run file.
//
//   auto collector = Collector::Start("a.tpr", options);   // Requires GIL (the probes look for it)
//   ...
//   (*collector)->RemoveProbes();                          // Requires GIL
//   (*collector)->Finish("normally");                      // waits for the thread: without the GIL
//
// Its thread (`trainperf`) never takes the GIL, has all signals masked, wakes every 200 ms to drain the rings, and
// writes one transaction a second at most (commit_pace.h). The setters only queue: they may be called with the GIL
// held. If it cannot go on (there is no memory left), the marks are off, the training goes on, and the run has a note
// of it.

#ifndef TRAINPERF_COLLECT_COLLECTOR_H_
#define TRAINPERF_COLLECT_COLLECTOR_H_

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/collect/budget.h"
#include "trainperf/collect/child_processes.h"
#include "trainperf/collect/closed_steps.h"
#include "trainperf/collect/cpu_rooms.h"
#include "trainperf/collect/device_feed.h"
#include "trainperf/collect/gil_probes.h"
#include "trainperf/collect/host_readings.h"
#include "trainperf/collect/loader_workers.h"
#include "trainperf/collect/standstill.h"
#include "trainperf/collect/thread_failure.h"
#include "trainperf/collect/thread_names.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/host.h"
#include "trainperf/run/run_writer.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {

struct CollectorOptions {
  bool overwrite = false;
  GilTier gil = GilTier::kAuto;
  double sampler_hz = 60;  // 0: none. A cold tick takes 65 us of CPU: 0.4 % of a core
  double budget = 0.01;    // of the run's time; over it the sampler steps down
  bool cuda = true;        // trace the GPU, once TraceCuda() is called
  CudaSteps cuda_steps = CudaSteps::kSome;
  TimelineOptions timeline;
};

class Collector {
 public:
  static absl::StatusOr<std::unique_ptr<Collector>> Start(const std::string& path, const CollectorOptions& options);
  ~Collector();

  void RemoveProbes();                            // Requires GIL. Idempotent.
  absl::Status Finish(const std::string& ended);  // Idempotent.
  // What the calling thread does from now on may be its first step: the watch is set up, or Ends() was before.
  void Begins();
  void Ends();  // what it does from now on is no part of its last step
  // Everything marked so far is in the file when it returns. Unavailable: it could not be written, or our thread
  // failed.
  absl::Status Flush();

  // Thread-safe.
  std::string path() const;
  int64_t steps_closed() const { return steps_closed_.load(std::memory_order_relaxed); }
  ThreadId step_thread() const { return step_thread_.load(std::memory_order_relaxed); }  // 0: not known yet
  ClosedSteps& closed_steps() { return closed_steps_; }
  // Queues a write; done on our thread at its next wake-up.
  void Post(std::function<void(RunWriter&)> write);
  void WatchWorker(uint32_t loader, int32_t pid);
  void WorkersAtWork(uint32_t loader);
  // Native ids of threads that were seen, have no name yet, and were not asked for too often.
  std::vector<int32_t> UnnamedThreads();
  void NameThread(int32_t native_tid, const std::string& name);
  // Likewise of processes that this one started, by their ids.
  std::vector<int32_t> UnnamedChildren();
  void NameChild(int32_t pid, const std::string& name);
  // Begins to trace the GPU; lets go of CUPTI for a neighbour; takes it again. Done on our thread; the caller waits for
  // it (without the GIL), since what it does next is to be traced, or is the neighbour's. True: it is traced.
  bool TraceCuda(const CudaTracerOptions& options);
  void PauseCuda();
  void ResumeCuda();
  // Changes what is traced of the GPU, where that is due: while the calling thread, which trains, waits here and calls
  // nothing of CUDA's (docs/gpu.md, "One crash"; others may still call it).
  void ChangeCudaTier();

 private:
  Collector(std::unique_ptr<RunWriter> writer, const CollectorOptions& options);

  bool RunOnOurThread(std::function<void()> command);
  static void* Main(void* self);
  void Fail(const ThreadFailure& failure);
  void WriteAfterFailure();
  void Loop();
  void Tick(int64_t now_ns, bool last);
  void MarkWatch(EventKind kind);
  void TellSteps();  // those that closed, to the tracing of the GPU
  void DrainRings(int64_t now_ns, bool last);
  void WatchLaunchers(size_t first);  // among the pending calls from there on
  void WritePosted();
  void WriteThreads();
  void WriteTimes(int64_t now_ns);
  void WriteOwnCost();
  void StepDownIfOverBudget(int64_t now_ns);
  void Commit();
  bool InThisProcess() const;  // false in a forked child, where our threads do not exist

  const CollectorOptions options_;
  const pid_t pid_;
  const int64_t started_ns_;
  const std::unique_ptr<RunWriter> writer_;  // our thread's, once it runs
  ClosedSteps closed_steps_;
  Timeline timeline_;
  bool trains_too_noted_ = false;
  bool many_threads_noted_ = false;
  bool summed_told_ = false;
  DeviceFeed device_;
  HostProbe host_;
  HostReadings host_readings_{&host_};
  WorkerStacks worker_stacks_;  // outlives gil_, whose sampler looks at it
  LoaderWorkers workers_{&worker_stacks_};
  ChildProcesses children_{&worker_stacks_};
  CpuRooms cpu_rooms_;
  ThreadNames thread_names_;
  Budget budget_;
  GilProbes gil_;
  Standstill standstill_;
  bool loop_begun_ = false;

  pthread_t thread_{};
  bool running_ = false;
  std::vector<Event> pending_;     // drained, not yet older than the watermark
  int64_t step_told_ = -1;         // the last one that the tracing was told of
  int64_t host_watermark_ns_ = 0;  // all that the host did before was drained
  uint64_t dropped_before_ = 0;
  int64_t next_second_ns_ = 0;
  std::string commit_error_;
  std::atomic<int64_t> steps_closed_{0};
  std::atomic<ThreadId> step_thread_{0};
  std::atomic<int64_t> collector_cpu_ns_{0};
  int64_t device_cpu_ns_ = 0;  // of it, for what a traced device did

  mutable std::mutex mutex_;  // guards what follows; never held over anything that waits
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<Event> watch_marks_;  // its beginning and end, not drained yet
  std::vector<std::function<void(RunWriter&)>> posted_;
  std::vector<std::function<void()>> commands_;
  int64_t commands_wanted_ = 0;
  int64_t commands_done_ = 0;
  std::string path_;
  int64_t flushes_wanted_ = 0;
  int64_t flushes_done_ = 0;
  int64_t flush_asked_ns_ = 0;  // when the last was wanted
  bool stopping_ = false;
  ThreadFailure failure_;
  int64_t failed_ns_ = 0;
  bool finished_ = false;
  absl::Status result_;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_COLLECTOR_H_
