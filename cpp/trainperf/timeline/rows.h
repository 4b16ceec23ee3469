// Rows: phases while they may still change. A row is a phase, or the gap (time outside of brackets, whose phase what
// comes next decides), either for certain or tentatively inside of what may turn out to be validation.

#ifndef TRAINPERF_TIMELINE_ROWS_H_
#define TRAINPERF_TIMELINE_ROWS_H_

#include <cstdint>

#include "trainperf/event/event.h"

namespace trainperf {

using Row = uint8_t;
inline constexpr int kGapRow = kPhaseCount;
inline constexpr int kPlainRows = kPhaseCount + 1;
inline constexpr int kRowCount = 2 * kPlainRows;
inline constexpr uint32_t kTentativeMask = ((1u << kPlainRows) - 1) << kPlainRows;

constexpr Row RowOf(Phase phase) { return static_cast<Row>(phase); }
constexpr bool IsTentative(int row) { return row >= kPlainRows; }
constexpr Row Plain(int row) { return static_cast<Row>(IsTentative(row) ? row - kPlainRows : row); }
constexpr Row Tentative(int row) { return static_cast<Row>(IsTentative(row) ? row : row + kPlainRows); }
constexpr bool IsGap(int row) { return Plain(row) == kGapRow; }

// What a tentative row becomes when it was validation after all. What people bracket apart stays apart.
constexpr Row Confirmed(int row) {
  switch (Plain(row)) {
    case static_cast<Row>(Phase::kBackward):
    case static_cast<Row>(Phase::kOptimizer):
    case static_cast<Row>(Phase::kCheckpoint):
    case static_cast<Row>(Phase::kLogging):
      return Plain(row);
    default:
      return RowOf(Phase::kValidation);
  }
}

// The phase of a row that nothing came to decide.
constexpr Phase PhaseOf(int row) { return IsGap(row) ? Phase::kOther : static_cast<Phase>(Plain(row)); }

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_ROWS_H_
