// Tables kept_step, segment and device_segment: the single steps that keep their own timeline, however long the run.
//
// They are the `worst` longest, an even spread over the flagged ones, and the first few warm-ups (which do not compete
// for the worst: they would hide the rest).

#ifndef TRAINPERF_RUN_KEPT_STEPS_H_
#define TRAINPERF_RUN_KEPT_STEPS_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trainperf/base/name_table.h"
#include "trainperf/run/run_part.h"
#include "trainperf/run/step_rows.h"

namespace trainperf {

class KeptSteps : public RunPart {
 public:
  KeptSteps(int worst, int max_flagged)
      : max_worst_(worst < 0 ? 0 : worst), max_flagged_(max_flagged < 0 ? 0 : max_flagged) {}
  void Add(const StepRow& row, const StepRecord& step);
  void NativeIsLaunch();
  void SetNames(const NameTable* names) { names_ = names; }

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  enum Reason : unsigned { kWorst = 1, kFlagged = 2, kWarmUpReason = 4 };
  struct Kept {
    StepRow row;
    std::vector<Segment> segments;
    std::vector<std::pair<uint32_t, std::vector<DeviceSegment>>> devices;
    unsigned reasons = 0;
    bool unwritten = true;
    bool in_file = false;
  };

  void Keep(const StepRow& row, const StepRecord& step, Reason reason);
  void LetGo(int64_t index, Reason reason);
  bool IsAmongWorst(int64_t wall_ns) const;
  bool IsPickedFlagged(uint32_t flags);

  absl::Status WriteSegments(Database& db, int64_t index, const Kept& kept) const;

  const NameTable* names_ = nullptr;
  size_t max_worst_;
  size_t max_flagged_;
  std::map<int64_t, Kept> kept_;                      // by index of the step
  std::set<std::pair<int64_t, int64_t>> worst_;       // wall, index
  std::vector<std::pair<int64_t, int64_t>> flagged_;  // how many flagged ones came before it, index
  int64_t flagged_seen_ = 0;
  int64_t flagged_stride_ = 1;
  int warm_ups_ = 0;
  bool has_devices_ = false;        // some step that was kept had
  std::vector<int64_t> to_delete_;  // in the file, but no longer kept; never more than the file holds
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_KEPT_STEPS_H_
