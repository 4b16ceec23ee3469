// Tables wall_histogram and cause_share: how all steps are distributed, whatever their number.

#ifndef TRAINPERF_RUN_DISTRIBUTIONS_H_
#define TRAINPERF_RUN_DISTRIBUTIONS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "trainperf/run/run_part.h"
#include "trainperf/run/step_rows.h"

namespace trainperf {

class Distributions : public RunPart {
 public:
  void Add(const StepRow& step);
  // Exact for steps that had no launching of their own, and none had before the first device was seen.
  void NativeIsLaunch();

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  struct Bin {
    int64_t upper_ns = 0;
    int64_t steps = 0;
    int64_t wall_ns = 0;
    bool unwritten = true;
  };
  struct Share {
    int64_t steps = 0;
    bool unwritten = false;
  };

  std::map<std::pair<bool, int64_t>, Bin> bins_;  // warm-up, lower end; 64 to an octave
  Share shares_[kCauseCount][101] = {};           // by whole percent of the step; 0 is not kept
  bool compute_is_stale_ = false;                 // in the file
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_DISTRIBUTIONS_H_
