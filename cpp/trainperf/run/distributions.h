// Tables wall_histogram and cause_share: how all steps are distributed, whatever their number.

#ifndef TRAINPERF_RUN_DISTRIBUTIONS_H_
#define TRAINPERF_RUN_DISTRIBUTIONS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
    bool unwritten = false;
  };
  struct Share {
    int64_t steps = 0;
    bool unwritten = false;
  };
  using BinKey = std::pair<bool, int64_t>;  // warm-up, lower end; 64 to an octave

  absl::flat_hash_map<BinKey, Bin> bins_;
  std::vector<BinKey> unwritten_bins_;
  Share shares_[kCauseCount][101] = {};  // by whole percent of the step; 0 is not kept
  bool compute_is_stale_ = false;        // in the file
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_DISTRIBUTIONS_H_
