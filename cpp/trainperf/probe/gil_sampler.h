// A background thread that looks, 60 times a second or as often as is cheap (look_pace.h), who holds the GIL and where
// the step thread is.
//
//   auto sampler = GilSampler::Start(options);        // Requires GIL (to find it); the thread itself never takes it
//   (*sampler)->Watch(step_thread_id);                // Thread-safe; 0: nobody
//   (*sampler)->Drain([](const Event& e) { ... });    // one consumer: kHold, kSample, kBeside
//
// With exact waits it gives hold shares, and splits on-CPU and blocked time; without, it also estimates the waits (tier
// "procfs"): kGilWait events of the watched thread, each standing for one sampling gap.

#ifndef TRAINPERF_PROBE_GIL_SAMPLER_H_
#define TRAINPERF_PROBE_GIL_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainperf/event/event.h"
#include "trainperf/probe/worker_stacks.h"

namespace trainperf {

struct GilSamplerOptions {
  int64_t period_ns = 16'000'000;   // mean; jittered by +-75 %
  bool estimate_waits = false;      // the exact hook is off: tier procfs
  bool look_at_gil = true;          // false: there is none to be seen; states and stacks of the watched thread only
  WorkerStacks* workers = nullptr;  // looked at beside the watched thread; outlives the sampler
};

class GilSampler {
 public:
  struct Stats {
    int64_t samples;
    int64_t late;      // woke more than one period late: starved
    int64_t rejected;  // stacks that could not be read
    int64_t cpu_ns;    // of the sampler's thread so far
    bool stacks;       // frames can be read here (else thread names only)
    bool attached;     // there is no GIL, and a thread that is attached to the interpreter counts as its holder
    bool waits;        // with estimate_waits: procfs can tell who waits (else tier busy-only)
    std::string why;   // when stacks or waits is false
  };

  static absl::StatusOr<std::unique_ptr<GilSampler>> Start(const GilSamplerOptions& options);
  virtual ~GilSampler() = default;  // stops and joins; takes at most a few ms
  virtual void Watch(ThreadId thread) = 0;
  virtual void MeetOnCpu() = 0;  // from the next look but one they come quickly, until one meets it. Thread-safe.
  virtual void SetPeriod(int64_t period_ns) = 0;  // Thread-safe.
  // No sample that is not in the ring yet is of before this time. Thread-safe.
  virtual int64_t next_ns() const = 0;
  virtual size_t Drain(const std::function<void(const Event&)>& visit) = 0;
  virtual uint64_t dropped() const = 0;
  virtual Stats stats() const = 0;  // Thread-safe.
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_GIL_SAMPLER_H_
