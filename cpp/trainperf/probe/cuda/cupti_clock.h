// From CUPTI's time to CLOCK_MONOTONIC: a piecewise-linear fit of readings of both clocks.
//
//   CuptiClock clock;
//   clock.Sample(monotonic_ns, cupti_time);   // at every flush; after the first one and a jump again, 2 ms later
//   int64_t at_ns = clock.ToMonotonic(record.start);
//
// CUPTI's clock is opaque: CLOCK_REALTIME by default, but the processor's counter once Kineto has registered its own
// timestamp function; and CLOCK_REALTIME itself may be set. A reading that is not where the line leads starts a new
// piece, whose second reading tells its unit.

#ifndef TRAINPERF_PROBE_CUDA_CUPTI_CLOCK_H_
#define TRAINPERF_PROBE_CUDA_CUPTI_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <deque>

namespace trainperf {

// Not thread-safe.
class CuptiClock {
 public:
  // What NTP may bend between two readings: 500 ppm; and what a preempted reading is off by.
  static constexpr double kMaxDrift = 1e-3;
  static constexpr int64_t kReadingErrorNs = 50'000;

  // `monotonic_ns` must rise. Returns true when the clock has jumped since the last reading.
  bool Sample(int64_t monotonic_ns, uint64_t cupti);

  // 0 before the first reading. Exact to the readings' own error within a piece.
  int64_t ToMonotonic(uint64_t cupti) const;

  int64_t jumps() const { return jumps_; }
  bool ready() const { return !pieces_.empty(); }

 private:
  static constexpr size_t kMaxPieces = 16;

  struct Piece {
    int64_t ns;  // the last reading
    uint64_t cupti;
    double slope;         // ns per tick
    int64_t earliest_ns;  // the last reading of the piece before: nothing earlier is in this one
    int64_t readings;
  };

  static int64_t Map(const Piece& piece, uint64_t cupti);

  std::deque<Piece> pieces_;
  int64_t jumps_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CUPTI_CLOCK_H_
