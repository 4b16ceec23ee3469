#include "trainperf/collect/closed_steps.h"

#include <algorithm>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

void PushBounded(const ClosedStep& step, size_t max, std::deque<ClosedStep>* steps) {
  if (steps->size() >= max) steps->pop_front();
  steps->push_back(step);
}

void NativeIsLaunch(std::array<int64_t, kCauseCount>* causes_ns) {
  int64_t& compute_ns = (*causes_ns)[static_cast<size_t>(Cause::kCompute)];
  (*causes_ns)[static_cast<size_t>(Cause::kLaunch)] += compute_ns;
  compute_ns = 0;
}

}  // namespace

void ClosedSteps::FeedsDevice() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (feeds_device_) return;
  feeds_device_ = true;
  NativeIsLaunch(&totals_.causes_ns);
  for (ClosedStep& step : recent_) NativeIsLaunch(&step.causes_ns);
  for (ClosedStep& step : recent_flagged_) NativeIsLaunch(&step.causes_ns);
}

void ClosedSteps::OnStep(const StepRecord& step) {
  if (step.feeds_device) FeedsDevice();
  const bool traced =
      std::none_of(step.devices.begin(), step.devices.end(), [](const DeviceStep& device) { return device.untraced; });
  ClosedStep closed{step.index, step.end_ns - step.start_ns, step.flags, {}, step.start_ns, traced};
  ForEachPart(step, [&](Phase phase, Mechanism mechanism, int64_t ns) {
    closed.causes_ns[static_cast<size_t>(CauseOf(phase, mechanism, false))] += ns;
  });
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (feeds_device_) NativeIsLaunch(&closed.causes_ns);
    ++totals_.steps;
    totals_.wall_ns += closed.wall_ns;
    for (size_t i = 0; i < closed.causes_ns.size(); ++i) totals_.causes_ns[i] += closed.causes_ns[i];
    for (size_t bit = 0; bit < totals_.flagged.size(); ++bit) totals_.flagged[bit] += (closed.flags >> bit) & 1;
    PushBounded(closed, kMaxRecent, &recent_);
    if ((closed.flags & kFlags) != 0) {
      PushBounded(closed, kMaxFlagged, &recent_flagged_);
      flagged_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  next_->OnStep(step);
}

void ClosedSteps::OnTakenBack() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    totals_ = StepTotals();
    recent_.clear();
    recent_flagged_.clear();
    taken_.store(flagged_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  next_->OnTakenBack();
}

std::vector<ClosedStep> ClosedSteps::TakeFlagged() {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t flagged = flagged_.load(std::memory_order_relaxed);
  const int64_t wanted = flagged - taken_.exchange(flagged, std::memory_order_relaxed);
  const size_t count = std::min(recent_flagged_.size(), static_cast<size_t>(wanted));
  return {recent_flagged_.end() - static_cast<std::ptrdiff_t>(count), recent_flagged_.end()};
}

std::vector<ClosedStep> ClosedSteps::RecentFlagged() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {recent_flagged_.begin(), recent_flagged_.end()};
}

std::vector<ClosedStep> ClosedSteps::Recent(int64_t after) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto first =
      std::partition_point(recent_.begin(), recent_.end(), [&](const ClosedStep& step) { return step.index <= after; });
  return {first, recent_.end()};
}

StepTotals ClosedSteps::totals() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return totals_;
}

}  // namespace trainperf
