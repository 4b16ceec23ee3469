// What looks at the GIL during a watch: the hook that times waits exactly, and the sampler. On a free-threaded build
// also the hook that times waits for what takes its place.
//
//   GilProbes probes(GilTier::kAuto, 60);
//   probes.Start(&writer);          // Requires GIL. Writes which tier each has, and why not a better one
//   probes.Drain(take);             // the collector's thread: what the sampler has seen
//   probes.RemoveWaits();           // Requires GIL: the hook is out; what it cost is kept
//   probes.StopSampler();

#ifndef TRAINPERF_COLLECT_GIL_PROBES_H_
#define TRAINPERF_COLLECT_GIL_PROBES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "trainperf/event/event.h"
#include "trainperf/probe/gil_sampler.h"
#include "trainperf/probe/gil_waits.h"
#include "trainperf/probe/runtime_waits.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

enum class GilTier { kAuto, kExact, kProcfs, kBusyOnly, kOff };

class GilProbes {
 public:
  // `workers`: looked at by the sampler; outlives this.
  GilProbes(GilTier tier, double sampler_hz, WorkerStacks* workers = nullptr)
      : tier_(tier), workers_(workers), asked_hz_(sampler_hz), hz_(sampler_hz) {}

  void Start(RunWriter* writer);  // Requires GIL.
  void RemoveWaits();             // Requires GIL. Idempotent. Both hooks
  void StopSampler() { sampler_.reset(); }
  bool samples() const { return sampler_ != nullptr; }
  void Abandon() { (void)sampler_.release(); }  // in a forked child its thread does not exist: joining it would hang

  // The rest is the collector's thread's.

  // No sample that Drain() has yet to give is of before this time, `now_ns` at most.
  int64_t SettledNs(int64_t now_ns) const;
  void Drain(const std::function<void(const Event&)>& take);
  void Watch(ThreadId step_thread);
  void MeetOnCpu();
  int64_t cost_ns() const;  // so far
  void WriteOwnCost(RunWriter* writer) const;
  // With all else it has cost more than `budget`, a share of one second: half as often from now on.
  void StepDown(double budget, RunWriter* writer);

 private:
  GilWaits::Stats waits() const;
  RuntimeWaits::Stats runtime_waits() const;
  void WriteTiers(const GilSamplerOptions& sampler, const std::string& why_not_exact,
                  const std::string& why_not_sampled, RunWriter* writer) const;

  const GilTier tier_;
  WorkerStacks* const workers_;
  const double asked_hz_;
  bool began_without_gil_ = false;
  double hz_;
  std::unique_ptr<GilSampler> sampler_;

  std::atomic<bool> gil_came_{false};  // it was switched on while the watch ran

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<GilWaits> waits_;
  GilWaits::Stats last_waits_{};  // kept when the hook is taken out
  std::unique_ptr<RuntimeWaits> runtime_waits_;
  RuntimeWaits::Stats last_runtime_waits_{};
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_GIL_PROBES_H_
