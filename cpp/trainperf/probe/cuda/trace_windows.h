// Decides in which steps kernels are traced, where tracing them all would cost more than it may.
//
//   TraceWindows windows(0.005, seed, now_ns, passed);
//   windows.SawStep(kind_bits, start_ns, traced);              // of each step that closed
//   windows.Look(now_ns, passed, cost_ns);                     // ten times a second
//   SafePoints::SetDue(windows.due());                         // there, tracing is switched
//   windows.Switched(now_ns, passed);                          // told of it later, before the next look
//
// Steps are counted in safe points. Tracing is on at the start, until a credit is spent; where it costs no more than
// its share, that is for ever. From then on it is on for windows of some steps, as many as are needed for what they
// cost to be more than what switching costs. The steps between two windows are drawn from a geometric distribution,
// whose mean lets the cost be paid back: each step is as likely as any other to begin a window, whatever it does
// itself, and a loop's own periods are no matter. A window comes out of turn when steps take another time than they did
// in the last one, and where an epoch, a validation or a checkpoint is expected, of which few were traced so far. These
// are on credit too.
//
// Pure: no clock, no thread. What tracing costs is told late (records come in buffers), so a window's cost is looked at
// when it has been over for a while.

#ifndef TRAINPERF_PROBE_CUDA_TRACE_WINDOWS_H_
#define TRAINPERF_PROBE_CUDA_TRACE_WINDOWS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainperf/probe/cuda/safe_points.h"

namespace trainperf {

class TraceWindows {
 public:
  static constexpr int kKinds = 3;         // of steps that are expected: an epoch's first, validation, checkpoint
  static constexpr int kTracedOfKind = 2;  // so many are waited for
  static constexpr int64_t kCreditNs = 10'000'000;
  static constexpr int64_t kFewestSteps = 10;  // of a window: its first and its last are not whole
  static constexpr int64_t kFewestDear = 4;    // of steps that cost more than the credit allows
  static constexpr int64_t kMostSteps = 64;
  static constexpr int64_t kToldNs = 250'000'000;  // after a window's end, all of its cost is known
  static constexpr int64_t kRestNs = 500'000'000;  // at least, between windows by chance: longer than until it is told
  static constexpr int64_t kLeanNs = 2'000'000'000;
  static constexpr double kChange = 1.3;  // of the time of a step

  // `share`: of the run's time, that tracing may cost.
  TraceWindows(double share, uint64_t seed, int64_t now_ns, int64_t passed);

  bool tracing() const { return tracing_; }
  // The safe point at which tracing is to be switched; SafePoints::kNever: none is known yet.
  int64_t due() const { return due_; }
  // Of the next window, or of the one at hand: in steps.
  int64_t length() const { return length_; }
  int64_t windows() const { return windows_; }
  // What is left on between windows costs by itself, as a share of the time.
  double lean_rate() const { return lean_rate_; }

  // `kinds`: a bit for each that the step is of.
  void SawStep(uint32_t kinds, int64_t start_ns, bool traced);
  // `cost_ns`: what tracing has cost so far, as far as is known.
  void Look(int64_t now_ns, int64_t passed, int64_t cost_ns);
  // On, where it was off, or the other way round. A window that begins is to end length() safe points later.
  void Switched(int64_t now_ns, int64_t passed);
  void SwitchTook(int64_t ns);
  // Tracing was off for another reason, and is on again: as at the start, but without its credit.
  void Restart(int64_t now_ns, int64_t passed, int64_t cost_ns);

 private:
  struct Kind {
    int64_t last_ns = 0;
    int64_t period_ns = 0;
    int traced = 0;
  };

  void Account(int64_t now_ns, int64_t cost_ns);
  void MeasureStep(int64_t now_ns, int64_t passed);
  void CloseWindow(int64_t now_ns, int64_t passed, int64_t cost_ns);
  void ComeOutOfTurn(int64_t now_ns, int64_t passed);
  int64_t Length() const;
  int64_t Draw(double mean);

  const double share_;
  uint64_t random_;
  bool tracing_ = true;
  bool first_ = true;
  bool planned_ = false;  // the next window
  int64_t due_ = SafePoints::kNever;
  int64_t windows_ = 1;
  int64_t length_ = 0;  // of the next window

  // What may be spent: negative after a window, until it is paid back.
  double left_ns_ = kCreditNs;
  int64_t accounted_ns_;
  int64_t accounted_cost_ns_ = 0;
  int64_t spent_ns_ = 0;  // from the look before to the last one

  // The window at hand, or the last one.
  int64_t begun_passed_;
  int64_t begun_cost_ns_ = 0;
  int64_t ended_ns_ = 0;
  int64_t ended_passed_ = 0;
  double step_cost_ns_ = 0;
  double switch_ns_ = 0;
  double traced_step_ns_ = 0;  // what a step took when it began

  // Between windows.
  int64_t lean_since_ns_ = 0;
  int64_t lean_cost_ns_ = 0;
  double lean_rate_ = 0;

  int64_t looked_ns_;
  int64_t looked_passed_;
  std::array<double, 7> took_ns_{};  // a step, in the last looks
  size_t looks_ = 0;
  double step_ns_ = 0;  // the median of these
  std::array<Kind, kKinds> kinds_{};
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_TRACE_WINDOWS_H_
