// Which tier of the tracer the budget allows.
//
//   TierControl control;
//   if (control.Judge(cost_share_of_budget, may_go_blind)) tracer->SetTier(control.tier());   // once a second
//
// Down after two seconds in a row over the budget; up again after thirty at a quarter of it or less, and at most twice
// in a run, so that it does not swing.

#ifndef TRAINPERF_PROBE_CUDA_TIER_CONTROL_H_
#define TRAINPERF_PROBE_CUDA_TIER_CONTROL_H_

namespace trainperf {

// What is traced, costliest first.
enum class CudaTier {
  kFull,  // kernels, copies, and the host's calls that say something
  kSync,  // only the host's waits, allocations, copies, loads and full queues: no kernel is seen, nor its launch
  kOff,
};

inline const char* CudaTierName(CudaTier tier) {
  switch (tier) {
    case CudaTier::kFull:
      return "cupti-full";
    case CudaTier::kSync:
      return "cupti-sync";
    case CudaTier::kOff:
      break;
  }
  return "off";
}

class TierControl {
 public:
  static constexpr int kSecondsOver = 2;
  static constexpr int kSecondsUnder = 30;
  static constexpr double kWellUnder = 0.25;
  static constexpr int kMaxClimbs = 2;

  // `share`: the tracer's cost as a share of the budget, in the last second. `may_go_blind`: whether kernels may be
  // given up for it. True: the tier has changed.
  bool Judge(double share, bool may_go_blind) {
    over_ = share > 1 && (may_go_blind || tier_ != CudaTier::kFull) ? over_ + 1 : 0;
    under_ = share <= kWellUnder ? under_ + 1 : 0;
    if (over_ >= kSecondsOver && tier_ != CudaTier::kOff) {
      tier_ = static_cast<CudaTier>(static_cast<int>(tier_) + 1);
      over_ = under_ = 0;
      return true;
    }
    if (under_ >= kSecondsUnder && tier_ != CudaTier::kFull && tier_ != CudaTier::kOff && climbs_ < kMaxClimbs) {
      tier_ = static_cast<CudaTier>(static_cast<int>(tier_) - 1);
      ++climbs_;
      over_ = under_ = 0;
      return true;
    }
    return false;
  }

  CudaTier tier() const { return tier_; }

 private:
  CudaTier tier_ = CudaTier::kFull;
  int over_ = 0;
  int under_ = 0;
  int climbs_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_TIER_CONTROL_H_
