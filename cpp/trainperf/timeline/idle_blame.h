// Explains idle gaps of a device by what the host did in them: each nanosecond of a gap gets the cause that the host's
// log has there, and what the log does not hold is unknown.

#ifndef TRAINPERF_TIMELINE_IDLE_BLAME_H_
#define TRAINPERF_TIMELINE_IDLE_BLAME_H_

#include <array>
#include <cstdint>
#include <vector>

#include "trainperf/timeline/detail_table.h"
#include "trainperf/timeline/device_sums.h"
#include "trainperf/timeline/launcher_logs.h"
#include "trainperf/timeline/piece.h"
#include "trainperf/timeline/sample_split.h"

namespace trainperf {

class IdleBlame {
 public:
  // Of one finished step, whose rows are phases by now.
  IdleBlame(const Piece& step, const SampleSplit& split, const LauncherLogs& launchers)
      : step_(step), split_(split), launchers_(launchers) {}

  // Gaps in order. Adds their causes to `idle_ns`, and the GIL's holders to `details`.
  void Explain(const std::vector<IdleGap>& gaps, uint32_t device, int64_t (&idle_ns)[kCauseCount],
               DetailTable* details);
  // Gives idle segments that are to be explained their causes, and splits the long ones where the cause changes.
  void Name(std::vector<DeviceSegment>* segments);

 private:
  struct Sums {
    std::array<Measures, kPhaseCount> rest;                              // on CPU, blocked ... : not yet split
    std::array<std::array<int64_t, kMechanismCount>, kPhaseCount> told;  // exactly
    uint32_t phases = 0;                                                 // bit p: one of them is not all zero
  };

  // Who says what the host did in a gap.
  enum class Teller : uint8_t {
    kStepThread,
    kLauncher,  // the other thread that ended it
    kOnlooker,  // the step thread, of a gap that another one ended
  };

  template <typename Visit>
  void WalkStep(int64_t start_ns, int64_t end_ns, Teller teller, Visit&& visit);
  template <typename Visit>
  void Walk(const IdleGap& gap, Visit&& visit);
  void Sweep(const IdleGap& gap, uint32_t device, DetailTable* details);
  void AddEntry(const SegmentList::Entry& entry, int64_t ns, const IdleGap& gap, Teller teller);
  void AddUnknown(Phase phase, int64_t ns);
  void Finish(Sums* sums, bool after_sync, int64_t (&idle_ns)[kCauseCount]) const;
  Cause CauseOfEntry(const SegmentList::Entry& entry, int64_t ns, const IdleGap& gap, Teller teller);
  Cause Largest();  // of what was added; empties

  const Piece& step_;
  const SampleSplit& split_;
  const LauncherLogs& launchers_;
  size_t at_ = 0;  // where the sweep of the log is
  Sums plain_{};
  Sums synced_{};
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_IDLE_BLAME_H_
