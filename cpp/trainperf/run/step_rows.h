// Table step: one row a step, until there are too many; then a row stands for two neighbours, then four ...
//
// All rows merge alike (not the old ones first), so that every row stands for the same number of steps and a chart over
// them has one scale. What must be known of single steps is kept by KeptSteps and Distributions.

#ifndef TRAINPERF_RUN_STEP_ROWS_H_
#define TRAINPERF_RUN_STEP_ROWS_H_

#include <cstdint>
#include <vector>

#include "trainperf/run/run_part.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

// A row of tables step and kept_step, in the order of their columns.
struct StepRow {
  int64_t first_step;
  int64_t steps;
  int64_t start_ns;
  int64_t wall_ns;
  int64_t wall_min_ns;
  int64_t wall_max_ns;
  int64_t flags;
  int64_t fetches;
  int64_t backwards;
  int64_t optimizer_steps;
  int64_t compile_ns;
  int64_t cause_ns[kCauseCount];
  int64_t phase_ns[kPhaseCount];

  static StepRow Of(const StepRecord& step, bool feeds_device);
  void Add(const StepRow& later);
  // What was named before a device was seen: native time that feeds one is `launch`.
  void NativeIsLaunch();
  const int64_t* values() const { return &first_step; }
};
inline constexpr int kStepColumns = 11 + kCauseCount + kPhaseCount;
static_assert(sizeof(StepRow) == kStepColumns * sizeof(int64_t));

class StepRows : public RunPart {
 public:
  explicit StepRows(int max_rows);
  void Add(const StepRow& step);
  void NativeIsLaunch();
  int64_t steps_per_row() const { return width_; }
  int64_t last_row() const { return rows_.empty() ? -1 : rows_.back().first_step; }  // its first step

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  void MergeNeighbours();

  size_t max_rows_;
  int64_t width_ = 1;
  std::vector<StepRow> rows_;
  size_t unwritten_from_ = 0;   // rows are only ever appended or, the last one, added to
  bool file_is_stale_ = false;  // rows have merged: the table is written anew
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_STEP_ROWS_H_
