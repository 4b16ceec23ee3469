// Turns events into steps whose every nanosecond has one phase and one mechanism.
//
//   Timeline timeline(options, &sink);
//   for (const Event& e : merged_by_end_ns) timeline.Add(e);
//   timeline.AdvanceTo(watermark_ns);   // nothing earlier will come: closes what can be closed
//   timeline.Finish(end_ns);            // the watch has ended: closes the last step
//
// Knows no clock, no thread and no file. Not thread-safe.

#ifndef TRAINPERF_TIMELINE_TIMELINE_H_
#define TRAINPERF_TIMELINE_TIMELINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "trainperf/base/name_table.h"
#include "trainperf/event/device_op.h"
#include "trainperf/event/event.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

struct TimelineOptions {
  bool feeds_device = false;
  // A step is flagged when the cause's share of its wall time reaches this (python/trainperf/findings/thresholds.py).
  double data_starved_share = 0.10;
  double gil_contended_share = 0.10;
  double host_stalled_share = 0.10;
  int max_segments = 256;
  int64_t first_step_index = 0;  // a run of a trace numbers its steps as the trace does
};

class Timeline {
 public:
  Timeline(const TimelineOptions& options, TimelineSink* sink);
  ~Timeline();

  // In order of end_ns, events and operations merged; what comes late is placed where it can be, and counted in
  // late_events().
  void Add(const Event& event);
  void Add(const DeviceOp& op);
  // Where the names of kernels are; must outlive this.
  void SetNames(const NameTable* names);
  // There will be samples: the first steps wait for one, up to two seconds.
  void AwaitSample();
  // Somebody wants all steps so far: those that wait are written with what is known of them.
  void WriteWaiting();
  void AdvanceTo(int64_t watermark_ns);
  void Finish(int64_t end_ns);
  // Events were lost on the way here: the step that is open now is kIncomplete.
  void MarkIncomplete();
  // The same of a device's operations.
  void MarkDeviceIncomplete(uint32_t device);
  // From here on no device's work is traced, as of now.
  void BeginUntraced(int64_t at_ns);
  // It was traced again since `on_ns`; of this device, from here on whatever runs was launched since.
  void EndUntraced(uint32_t device, int64_t on_ns, int64_t at_ns);

  ThreadId step_thread() const;      // 0 until a backward, run.step(), or a few batches of a DataLoader were seen
  int64_t steps_closed() const;      // given to the sink; the first ones are held back: docs/internals.md
  int64_t first_step_ns() const;     // when it starts; -1: none was seen yet
  int64_t lead_ns() const;           // from the first event to the first step
  int64_t incomplete_steps() const;  // a batch was fetched but never trained on (an exception, the end of the watch)
  int64_t late_events() const;
  int64_t refused_ops() const;  // of devices beyond the first kMaxDevices
  // Two threads train at once: the steps are those of one of them, and of the other once that one is done.
  bool another_trains_too() const;
  // What a reader of the run is told when there are some.
  static std::string RefusedOpsNote();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_TIMELINE_H_
