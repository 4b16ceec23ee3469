// The steps that closed lately, for the program that is being trained: who wants to act on a flag, or to log figures,
// reads them here and not in the run file.
//
//   Timeline timeline(options, &closed_steps);   // passes everything on to the run's writer
//   if (closed_steps.waiting()) for (const ClosedStep& step : closed_steps.TakeFlagged()) ...
//
// Bounded, whatever the run's length. On* are called by the collector's thread; the rest is thread-safe.

#ifndef TRAINPERF_COLLECT_CLOSED_STEPS_H_
#define TRAINPERF_COLLECT_CLOSED_STEPS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

struct ClosedStep {
  int64_t index;
  int64_t wall_ns;
  uint32_t flags;  // StepFlag
  std::array<int64_t, kCauseCount> causes_ns;
  int64_t start_ns;
  bool device_traced;  // all devices were, in all of it
};

// Sums since the start of the watch: the difference of two of them is what lies between.
struct StepTotals {
  int64_t steps = 0;
  int64_t wall_ns = 0;
  std::array<int64_t, kCauseCount> causes_ns{};
  std::array<int64_t, 3> flagged{};  // data_starved, gil_contended, host_stalled
};

class ClosedSteps : public TimelineSink {
 public:
  static constexpr size_t kMaxRecent = 1024;
  static constexpr size_t kMaxFlagged = 1024;
  static constexpr uint32_t kFlags = kDataStarved | kGilContended | kHostStalled;

  ClosedSteps(TimelineSink* next, bool feeds_device) : next_(next), feeds_device_(feeds_device) {}

  void OnStep(const StepRecord& step) override;
  void OnDetail(const Detail& detail) override { next_->OnDetail(detail); }
  void OnSpan(const Span& span) override { next_->OnSpan(span); }
  void OnFetch(const FetchRecord& fetch) override { next_->OnFetch(fetch); }
  void OnTakenBack() override;

  // Whether steps were flagged since the last TakeFlagged(). Two loads: meant to be asked at every step.
  bool waiting() const { return flagged_.load(std::memory_order_relaxed) != taken_.load(std::memory_order_relaxed); }
  // Those, in order; the oldest are left out when there were more than kMaxFlagged.
  std::vector<ClosedStep> TakeFlagged();
  std::vector<ClosedStep> RecentFlagged() const;
  std::vector<ClosedStep> Recent(int64_t after) const;  // of a higher index
  StepTotals totals() const;

  // From now on native time is named launch, also of the steps before: as in the run file.
  void FeedsDevice();

 private:
  TimelineSink* const next_;
  std::atomic<int64_t> flagged_{0};
  std::atomic<int64_t> taken_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::deque<ClosedStep> recent_;
  std::deque<ClosedStep> recent_flagged_;
  StepTotals totals_;
  bool feeds_device_;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_CLOSED_STEPS_H_
