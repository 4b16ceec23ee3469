#include "trainperf/collect/gil_probes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/probe/marks.h"

namespace trainperf {
namespace {

// A look takes longer than that where the sampler is kept off the CPUs.
constexpr int64_t kLongestLookNs = 1'000'000'000;
constexpr double kLowestHz = 20;

int64_t PeriodNs(double hz) { return static_cast<int64_t>(1e9 / hz); }

}  // namespace

void GilProbes::Start(RunWriter* writer) {
  began_without_gil_ = tier_ != GilTier::kOff && !GilView::IsEnabled();
  std::string why_not_exact = "not asked for";
  if (tier_ == GilTier::kAuto || tier_ == GilTier::kExact) {
    absl::StatusOr<std::unique_ptr<GilWaits>> waits = GilWaits::Install();
    if (waits.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      waits_ = *std::move(waits);
    } else {
      why_not_exact = std::string(waits.status().message());
    }
  }
  if (tier_ != GilTier::kOff && tp_python_offsets.free_threaded) {
    absl::StatusOr<std::unique_ptr<RuntimeWaits>> waits = RuntimeWaits::Install();
    writer->SetTier("interpreter_waits", waits.ok() ? "exact" : "off", std::string(waits.status().message()));
    std::lock_guard<std::mutex> lock(mutex_);
    if (waits.ok()) runtime_waits_ = *std::move(waits);
  }
  GilSamplerOptions sampler;
  sampler.workers = workers_;
  sampler.look_at_gil = tier_ != GilTier::kOff;
  sampler.estimate_waits = sampler.look_at_gil && waits_ == nullptr && tier_ != GilTier::kBusyOnly;
  std::string why_not_sampled = "sampler_hz is 0";
  if (asked_hz_ > 0) {
    sampler.period_ns = PeriodNs(asked_hz_);
    absl::StatusOr<std::unique_ptr<GilSampler>> started = GilSampler::Start(sampler);
    if (!started.ok() && sampler.look_at_gil) {  // no GIL to be seen: states and stacks of the step thread still help
      why_not_sampled = std::string(started.status().message());
      sampler.look_at_gil = sampler.estimate_waits = false;
      started = GilSampler::Start(sampler);
    }
    if (started.ok()) {
      sampler_ = *std::move(started);
      sampler_->Watch(marks::CurrentThreadId());
    } else {
      why_not_sampled = std::string(started.status().message());
    }
  }
  WriteTiers(sampler, why_not_exact, why_not_sampled, writer);
}

void GilProbes::WriteTiers(const GilSamplerOptions& sampler, const std::string& why_not_exact,
                           const std::string& why_not_sampled, RunWriter* writer) const {
  const bool sees_gil = sampler_ != nullptr && sampler.look_at_gil;
  if (waits_ != nullptr) {
    writer->SetTier("gil_waits", "exact", "");
  } else if (sees_gil && sampler.estimate_waits && sampler_->stats().waits) {
    writer->SetTier("gil_waits", "procfs", why_not_exact);
  } else if (sees_gil) {
    const std::string why = sampler.estimate_waits ? sampler_->stats().why : why_not_exact;
    writer->SetTier("gil_waits", "busy-only", why);
  } else {
    writer->SetTier("gil_waits", "off", tier_ == GilTier::kOff ? "not asked for" : why_not_exact);
  }
  const bool sees_attached = sampler_ != nullptr && tier_ != GilTier::kOff && sampler_->stats().attached;
  if (sees_gil) {
    writer->SetTier("gil_holds", "sampled", "");
  } else if (sees_attached) {
    writer->SetTier("gil_holds", "sampled", "no GIL here: who is attached to the interpreter runs Python");
  } else {
    writer->SetTier("gil_holds", "off", tier_ == GilTier::kOff ? "not asked for" : why_not_sampled);
  }
  if (sampler_ == nullptr) {
    writer->SetTier("stacks", "off", why_not_sampled);
  } else {
    const GilSampler::Stats stats = sampler_->stats();
    writer->SetTier("stacks", stats.stacks ? "sampled" : "off", stats.stacks ? "" : stats.why);
  }
}

void GilProbes::RemoveWaits() {
  if (began_without_gil_ && GilView::IsEnabled()) gil_came_.store(true);
  std::unique_ptr<GilWaits> waits;
  std::unique_ptr<RuntimeWaits> runtime_waits;
  std::lock_guard<std::mutex> lock(mutex_);
  if (waits_ != nullptr) last_waits_ = waits_->stats();
  if (runtime_waits_ != nullptr) last_runtime_waits_ = runtime_waits_->stats();
  waits_.swap(waits);  // they go without the lock
  runtime_waits_.swap(runtime_waits);
}

GilWaits::Stats GilProbes::waits() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return waits_ != nullptr ? waits_->stats() : last_waits_;
}

RuntimeWaits::Stats GilProbes::runtime_waits() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return runtime_waits_ != nullptr ? runtime_waits_->stats() : last_runtime_waits_;
}

int64_t GilProbes::SettledNs(int64_t now_ns) const {
  return sampler_ == nullptr ? now_ns : std::clamp(sampler_->next_ns(), now_ns - kLongestLookNs, now_ns);
}

void GilProbes::Drain(const std::function<void(const Event&)>& take) {
  if (sampler_ != nullptr) sampler_->Drain(take);
}

void GilProbes::Watch(ThreadId step_thread) {
  if (sampler_ != nullptr) sampler_->Watch(step_thread);
}

void GilProbes::MeetOnCpu() {
  if (sampler_ != nullptr) sampler_->MeetOnCpu();
}

int64_t GilProbes::cost_ns() const {
  return waits().cost_ns + runtime_waits().cost_ns + (sampler_ != nullptr ? sampler_->stats().cpu_ns : 0);
}

void GilProbes::WriteOwnCost(RunWriter* writer) const {
  const GilWaits::Stats hook = waits();
  const RuntimeWaits::Stats runtime = runtime_waits();
  writer->SetOverhead("gil_hook", hook.cost_ns + runtime.cost_ns);
  writer->SetDropped("gil_captures", hook.captures_refused + runtime.captures_refused);
  if (gil_came_.load()) {
    writer->SetTier("gil_waits", "off", "the GIL was switched on while the watch ran, as an imported module needs it");
  }
  if (sampler_ == nullptr) return;
  writer->SetOverhead("sampler", sampler_->stats().cpu_ns);
  writer->SetDropped("samples", static_cast<int64_t>(sampler_->dropped()));
}

void GilProbes::StepDown(double budget, RunWriter* writer) {
  const double hz = std::max(kLowestHz, hz_ / 2);
  if (sampler_ == nullptr || hz >= hz_) return;
  const bool again = hz_ < asked_hz_;
  hz_ = hz;
  sampler_->SetPeriod(PeriodNs(hz));
  writer->SetTier("gil_holds", "sampled",
                  absl::StrCat("stepped down to ", static_cast<int>(hz), " Hz: in one second trainperf cost more than ",
                               budget * 100, " % of it; the split of python from compute is coarser, too"));
  if (again) return;
  writer->AddNote(absl::StrCat("trainperf looks less often, to stay below ", budget * 100,
                               " %: in one second it cost more; times stay exact, places are coarser, and nothing "
                               "needs to be done"));
}

}  // namespace trainperf
