#include "trainperf/probe/cuda/cupti_clock.h"

#include <algorithm>
#include <cmath>

namespace trainperf {
namespace {

// Records are of the past; a time after the newest reading by more than a flush may take belongs to another piece.
constexpr int64_t kFutureNs = 1'000'000'000;
constexpr int64_t kBeforeFirstNs = 10'000'000'000;

int64_t Difference(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); }

}  // namespace

int64_t CuptiClock::Map(const Piece& piece, uint64_t cupti) {
  const int64_t ticks = Difference(cupti, piece.cupti);
  return piece.ns + (piece.slope == 1.0 ? ticks : std::llround(static_cast<double>(ticks) * piece.slope));
}

bool CuptiClock::Sample(int64_t monotonic_ns, uint64_t cupti) {
  if (pieces_.empty()) {
    pieces_.push_back({monotonic_ns, cupti, 1.0, monotonic_ns - kBeforeFirstNs, 1});
    return false;
  }
  Piece& piece = pieces_.back();
  const int64_t elapsed_ns = monotonic_ns - piece.ns;
  if (elapsed_ns <= 0) return false;
  const int64_t ticks = Difference(cupti, piece.cupti);
  const double predicted_ns = static_cast<double>(ticks) * piece.slope;
  const double allowed_ns = kReadingErrorNs + kMaxDrift * static_cast<double>(elapsed_ns);
  const bool first_slope = piece.readings == 1 && ticks > 0;
  if (first_slope || (ticks > 0 && std::fabs(predicted_ns - static_cast<double>(elapsed_ns)) <= allowed_ns)) {
    const double slope = static_cast<double>(elapsed_ns) / static_cast<double>(ticks);
    // A nanosecond clock keeps its unit: the reading's error over 100 ms would bend it more than NTP does.
    if (std::fabs(slope - 1.0) > kMaxDrift) piece.slope = first_slope ? slope : 0.9 * piece.slope + 0.1 * slope;
    piece.ns = monotonic_ns;
    piece.cupti = cupti;
    ++piece.readings;
    return false;
  }
  ++jumps_;
  pieces_.push_back({monotonic_ns, cupti, 1.0, piece.ns, 1});
  if (pieces_.size() > kMaxPieces) pieces_.pop_front();
  return true;
}

int64_t CuptiClock::ToMonotonic(uint64_t cupti) const {
  if (pieces_.empty()) return 0;
  // A step back makes times that fit two pieces: the one in whose stretch of time it lies is it, the newest first.
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const int64_t ns = Map(*piece, cupti);
    if (ns >= piece->earliest_ns && ns <= piece->ns + kFutureNs) return ns;
  }
  return Map(pieces_.back(), cupti);
}

}  // namespace trainperf
