#include "trainperf/run/distributions.h"

#include <algorithm>

#include "trainperf/run/words.h"

namespace trainperf {
namespace {

constexpr int kBitsKept = 7;  // so a bin is 1/64 to 1/128 of its value wide

int BitLength(int64_t value) { return value <= 0 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(value)); }

}  // namespace

void Distributions::Add(const StepRow& step) {
  const int64_t wall_ns = std::max<int64_t>(step.wall_ns, 0);
  const int shift = std::max(BitLength(wall_ns) - kBitsKept, 0);
  const int64_t lower = (wall_ns >> shift) << shift;
  const BinKey key = {(step.flags & kWarmUp) != 0, lower};
  Bin& bin = bins_[key];
  bin.upper_ns = lower + (int64_t{1} << shift);
  ++bin.steps;
  bin.wall_ns += wall_ns;
  if (!bin.unwritten) unwritten_bins_.push_back(key);
  bin.unwritten = true;
  if (wall_ns == 0) return;
  for (int cause = 0; cause < kCauseCount; ++cause) {
    if (step.cause_ns[cause] <= 0) continue;
    const int64_t ns = step.cause_ns[cause];
    const int64_t percent = ns <= INT64_MAX / 100 ? ns * 100 / wall_ns : ns / std::max<int64_t>(wall_ns / 100, 1);
    Share& share = shares_[cause][std::clamp<int64_t>(percent, 0, 100)];
    ++share.steps;
    share.unwritten = true;
  }
}

void Distributions::NativeIsLaunch() {
  for (int percent = 0; percent <= 100; ++percent) {
    Share& compute = shares_[static_cast<int>(Cause::kCompute)][percent];
    Share& launch = shares_[static_cast<int>(Cause::kLaunch)][percent];
    if (compute.steps == 0) continue;
    launch.steps += compute.steps;
    compute.steps = 0;
    launch.unwritten = true;
    compute.unwritten = false;
  }
  compute_is_stale_ = true;
}

absl::Status Distributions::Write(Database& db) {
  std::sort(unwritten_bins_.begin(), unwritten_bins_.end());  // the order of the file's pages
  for (const BinKey& key : unwritten_bins_) {
    const Bin& bin = bins_[key];
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO wall_histogram VALUES (?, ?, ?, ?, ?)", key.first ? 1 : 0,
                                     key.second, bin.upper_ns, bin.steps, bin.wall_ns));
  }
  if (compute_is_stale_) TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM cause_share WHERE cause = 'compute'"));
  for (int cause = 0; cause < kCauseCount; ++cause) {
    for (int percent = 1; percent <= 100; ++percent) {
      const Share& share = shares_[cause][percent];
      if (!share.unwritten) continue;
      TRAINPERF_RETURN_IF_ERROR(
          db.Run("REPLACE INTO cause_share VALUES (?, ?, ?)", kCauseNames[cause], percent, share.steps));
    }
  }
  return absl::OkStatus();
}

void Distributions::Written() {
  compute_is_stale_ = false;
  for (const BinKey& key : unwritten_bins_) bins_[key].unwritten = false;
  unwritten_bins_.clear();
  for (auto& of_cause : shares_) {
    for (Share& share : of_cause) share.unwritten = false;
  }
}

void Distributions::MarkAllUnwritten() {
  unwritten_bins_.clear();
  for (auto& [key, bin] : bins_) {
    bin.unwritten = true;
    unwritten_bins_.push_back(key);
  }
  for (auto& of_cause : shares_) {
    for (Share& share : of_cause) share.unwritten = share.steps > 0;
  }
}

}  // namespace trainperf
