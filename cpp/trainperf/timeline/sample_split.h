// Splits exact CPU and blocked time by samples of the same phase: on CPU into Python and native, blocked into waiting
// for the process' own compute threads and the rest. A step's own samples count fully, older ones fade.

#ifndef TRAINPERF_TIMELINE_SAMPLE_SPLIT_H_
#define TRAINPERF_TIMELINE_SAMPLE_SPLIT_H_

#include <array>
#include <cstdint>

#include "trainperf/timeline/piece.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

class SampleSplit {
 public:
  static constexpr double kHalfLife = 200;  // in samples

  // A sample of a step that is not yet closed: what the first steps, which have none of their own, go by.
  void SeeAhead(SampleState state, int64_t ns);
  // Whether there is any that a step's time on CPU can be split by.
  bool tells_cpu() const { return ahead_.python + ahead_.native > 0; }
  // Takes in the samples of the step whose only, plain piece this is.
  void AddSamples(const Piece& step);
  // Writes the row of `phase`; its mechanisms sum to measures.total().
  void Split(Phase phase, const Measures& measures, int64_t (&ns)[kMechanismCount]) const;

 private:
  struct Weights {  // ns
    double python = 0;
    double native = 0;
    double parallel = 0;
    double blocked = 0;
  };

  static void Add(SampleState state, double ns, Weights* weights);

  std::array<Weights, kPhaseCount + 1> weights_;  // the last: of all phases
  Weights ahead_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_SAMPLE_SPLIT_H_
