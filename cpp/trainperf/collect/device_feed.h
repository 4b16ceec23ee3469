// Brings what the GPU's tracer tells into the timeline, in one order of time with the host's events.
//
//   DeviceFeed feed(writer, &timeline, budget, CudaSteps::kSome);
//   feed.Attach(options);                                      // or says in the tier `cuda` why not
//   int64_t until = feed.Drain(now, host_watermark, last, &events);
//   for (const Event& e : events) { feed.FeedUpTo(e.end_ns); timeline.Add(e); }
//   feed.FeedUpTo(until);
//
// The host's events wait until the device's have come, but at most two seconds. Steps of which operations were lost, or
// in which kernels were not traced, are marked: an idle device and one that was not looked at must not look alike.
// Where kernels are traced in windows of steps, what runs at a window's begin may have been launched before it: a step
// counts as traced from the start of the first operation on that was launched in the window.
// All on the collector's thread, but for SwitchWindow(): waiting for the collector would cost the training thread more
// than the switch does. What it did is told to the rest at the collector's next look.

#ifndef TRAINPERF_COLLECT_DEVICE_FEED_H_
#define TRAINPERF_COLLECT_DEVICE_FEED_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "trainperf/base/name_table.h"
#include "trainperf/event/device_op.h"
#include "trainperf/probe/cuda/call_folder.h"
#include "trainperf/probe/cuda/cuda_tracer.h"
#include "trainperf/probe/cuda/launch_calls.h"
#include "trainperf/probe/cuda/tier_control.h"
#include "trainperf/probe/cuda/trace_windows.h"
#include "trainperf/run/run_writer.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {

// In which steps kernels are traced.
enum class CudaSteps { kAll, kSome };

class DeviceFeed {
 public:
  static constexpr int64_t kLongestHoldNs = 2'000'000'000;
  static constexpr size_t kMaxNames = 16'384;
  static constexpr size_t kMaxHeld = size_t{1} << 18;  // operations; beyond, they are fed without waiting

  // `budget`: the share of the run's time that a watch may cost.
  DeviceFeed(RunWriter* writer, Timeline* timeline, double budget, CudaSteps steps);

  bool Attach(const CudaTracerOptions& options);  // false: it is not traced
  void Abandon();  // Lets go of CUPTI; the work that it still had is lost. Throws nothing.
  bool traces() const { return tracer_ != nullptr; }
  void Pause();
  void Resume();

  // Everything that ended by the returned time is in `events`, or is held here for FeedUpTo.
  int64_t Drain(int64_t now_ns, int64_t host_watermark_ns, bool last, std::vector<Event>* events);
  void FeedUpTo(int64_t until_ns);

  // Once a second: whether the budget wants another tier; what it costs and what was lost.
  void EverySecond(int64_t now_ns);
  void SawStep(uint32_t flags, int64_t start_ns, bool traced);  // that closed; StepFlag
  // A change waits for a safe point (safe_points.h), at which the training thread waits for this.
  void Change();
  // On the training thread, at a safe point that is due: begins or ends a window. False: it is the tier that is to
  // change.
  bool SwitchWindow();
  void ChangeTook(int64_t ns) { change_ns_.fetch_add(ns, std::memory_order_relaxed); }  // that thread's. Thread-safe.
  int64_t CostNs() const;                                                               // of the application's threads

 private:
  struct Gap {
    int64_t from_ns;
    int64_t to_ns;
  };

  struct Switch {
    int64_t ns;
    int64_t passed;
    bool on;
    absl::Status status;
  };

  void ChangeTier();
  void TakeSwitches();
  void TakeSwitchesLocked();
  void NoMoreSwitches();
  void PlanWindow(int64_t now_ns);
  void LookForCutOff(int64_t now_ns);
  void EndWindows();
  void EndUntraced(const DeviceOp& op);
  bool sees_kernels() const { return tracer_->running() && (windows_ || tracer_->tier() == CudaTier::kFull); }
  void WriteTier();
  std::string WhyLess() const;
  void NoteLosses(int64_t now_ns, bool last);
  int64_t LostSince() const;
  void SetBlind(bool blind, int64_t since_ns);
  void MarkIncomplete();
  void MarkGaps(int64_t until_ns);
  void MeetDevice(uint32_t id);
  void CheckLaunch(const DeviceOp& op);

  RunWriter* const writer_;
  Timeline* const timeline_;
  const double budget_;
  const CudaSteps steps_;
  NameTable names_;
  std::unique_ptr<CudaTracer> tracer_;
  CallFolder folder_;
  TierControl control_;
  std::atomic<bool> tier_due_{false};
  std::optional<TraceWindows> windows_;
  // Held for some moves only; the training thread only tries.
  std::mutex planning_;  // guards: whether there are windows, and these
  bool work_traced_ = true;
  int64_t window_steps_ = 0;
  std::vector<Switch> switches_;                         // that were not told to the rest yet
  std::deque<Gap> ended_;                                // windows whose records may not all have come yet
  int cut_off_ = 0;                                      // windows of whose last launches no record came
  int64_t lost_ns_ = 0;                                  // when it was last seen that records were lost
  std::deque<int64_t> windows_on_ns_;                    // the last ones
  absl::flat_hash_map<uint32_t, int64_t> traced_again_;  // the last window that is known to have work of a device
  std::atomic<int64_t> change_ns_{0};
  int64_t change_told_ns_ = 0;
  DecodedBatch batch_;
  std::vector<DeviceOp> held_;  // in order of end_ns; fed up to held_from_
  size_t held_from_ = 0;
  int64_t fed_until_ns_ = 0;
  int64_t drained_ns_ = 0;
  std::vector<Gap> gaps_;
  bool blind_ = false;
  std::vector<uint32_t> devices_;
  bool incomplete_before_first_ = false;  // something was lost before a device was known
  std::string tier_written_;
  bool refused_noted_ = false;

  LaunchCalls launches_;
  std::vector<DeviceOp> without_launch_;  // looked for again: work may end before its call does

  CudaTracer::Losses losses_before_;
  int64_t steps_at_loss_ = 0;
  int64_t drain_cpu_ns_ = 0;
  int64_t judged_ns_ = 0, judged_cost_ns_ = 0, judged_drain_ns_ = 0;
  int64_t late_ = 0, unmatched_ = 0, before_launch_ = 0, unheld_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_DEVICE_FEED_H_
