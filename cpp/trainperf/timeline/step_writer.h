// Gives finished pieces to the sink: as steps, numbered, or as what happened outside of steps. Where there is a
// sampler, the first ones wait for its first sample, which tells what their time on CPU was. Where the cgroup is
// watched, a piece waits for the reading that tells whether time on the run queue was throttling; where a device is
// fed, until its lane is whole up to the piece's end.

#ifndef TRAINPERF_TIMELINE_STEP_WRITER_H_
#define TRAINPERF_TIMELINE_STEP_WRITER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "trainperf/timeline/device_lane.h"
#include "trainperf/timeline/piece.h"
#include "trainperf/timeline/sample_split.h"
#include "trainperf/timeline/timeline.h"

namespace trainperf {

class StepWriter {
 public:
  StepWriter(const TimelineOptions& options, TimelineSink* sink, DeviceLane* device);

  std::unique_ptr<Piece> NewPiece(int64_t start_ns);
  // It was merged into the one before, and no step ends where it starts.
  void Merged(std::unique_ptr<Piece> piece);
  void PutStep(std::unique_ptr<Piece> piece);
  void PutOutside(std::unique_ptr<Piece> piece);
  void Recycle(std::unique_ptr<Piece> piece);
  // All steps so far were none.
  void TakeBack();

  // The cgroup's throttled time so far. `open`: pieces not yet put; `marked_ns`: the step thread's last mark.
  void HostReading(int64_t at_ns, int64_t throttled_ns, const std::vector<std::unique_ptr<Piece>>& open,
                   int64_t marked_ns);
  // Somebody samples: pieces wait for the first one.
  void AwaitSample() { asked_for_sample_ = awaits_sample_ = true; }
  void SawSample(SampleState state, int64_t ns);
  void AdvanceTo(int64_t watermark_ns);
  void Flush();  // from here on, too, no step waits for the first sample
  void WriteWaiting();
  // The device's lane has come further: writes what waited for it.
  void WriteSettled();
  // A device came into use: the lane learns where steps may end.
  void OpenCells(const std::vector<std::unique_ptr<Piece>>* open);

  TimelineSink* sink() { return sink_; }
  size_t max_segments() const { return max_segments_; }
  int64_t next_index() const { return options_.first_step_index + next_index_ + waiting_steps_; }
  int64_t steps_put() const { return next_index_ + waiting_steps_; }
  int64_t steps_closed() const { return next_index_; }

 private:
  struct Waiting {
    std::unique_ptr<Piece> piece;
    bool step;
  };

  void Put(std::unique_ptr<Piece> piece, bool step);
  bool MustWait(const Piece& piece) const;
  void Release(std::unique_ptr<Piece> piece, bool step);
  void Write(Piece& piece, bool step);
  uint32_t Flags(const Piece& piece) const;

  const TimelineOptions options_;
  const size_t max_segments_;
  TimelineSink* const sink_;
  DeviceLane* const device_;
  std::array<std::array<Cause, kMechanismCount>, kPhaseCount> causes_;
  std::vector<std::unique_ptr<Piece>> spare_;
  std::deque<Waiting> waiting_;    // for the first sample, or the cgroup's reading
  std::deque<Waiting> unsettled_;  // then for the device
  int64_t waiting_steps_ = 0;      // in both
  DetailTable device_details_;
  SampleSplit split_;
  StepRecord record_{};
  int64_t next_index_ = 0;  // less options_.first_step_index
  bool awaits_sample_ = false;
  bool asked_for_sample_ = false;

  bool host_seen_ = false;
  int64_t reading_ns_ = 0;
  int64_t throttled_ns_ = 0;
  int64_t credit_ns_ = 0;  // throttled time that no step's run delay has matched yet
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_STEP_WRITER_H_
