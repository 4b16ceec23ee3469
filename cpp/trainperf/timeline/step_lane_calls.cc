// The calls of the step thread, and of the one that stands in for it while it is blocked in backward: they are taken
// out of the stretch that they lie in, like waits for the GIL.

#include <algorithm>

#include "trainperf/event/names.h"
#include "trainperf/timeline/step_lane.h"

namespace trainperf {

void StepLane::OnCall(const Event& event, int64_t waits_until_ns) {
  if (in_loop()) AddCall(event, waits_until_ns, false);
}

void StepLane::AddCall(const Event& event, int64_t waits_until_ns, bool stand_in) {
  const HostCall call = static_cast<HostCall>(event.what);
  const Mechanism mechanism = MechanismOf(call);
  const auto caller = [stand_in](Mechanism m) {
    return stand_in                   ? StretchMeter::Caller::kStandIn
           : m == Mechanism::kGpuWait ? StretchMeter::Caller::kWaiting
                                      : StretchMeter::Caller::kItself;
  };
  const int64_t waited_ns = std::min(waits_until_ns, event.end_ns);
  if (waited_ns > event.start_ns) {
    AddCallPart(event.start_ns, waited_ns, Mechanism::kGpuWait, caller(Mechanism::kGpuWait));
  }
  AddCallPart(std::max(event.start_ns, waited_ns), event.end_ns, mechanism, caller(mechanism));
  for (size_t i = stretch_samples_.size(); i-- > 0 && stretch_samples_[i].at_ns > event.start_ns;) {
    StretchSample& sample = stretch_samples_[i];
    if (sample.at_ns <= event.end_ns && sample.thread == event.thread) sample.call = event.what;
  }
}

void StepLane::AddCallPart(int64_t start_ns, int64_t end_ns, Mechanism mechanism, StretchMeter::Caller caller) {
  const int64_t cursor_ns = meter_.cursor_ns();
  start_ns = std::max(start_ns, meter_.called_until_ns());
  if (meter_.AddCall(start_ns, end_ns, mechanism, caller) == 0) return;
  const bool in_gc = stack_.open(Bracket::kGc);
  const size_t max = max_stretch_segments();
  if (start_ns < cursor_ns) {
    stretch_segments_.Claim(start_ns, mechanism);
  } else {
    stretch_segments_.Add({cursor_ns, start_ns, row_, in_gc ? Mechanism::kGc : Mechanism::kUnknown, 0, 0}, max);
  }
  stretch_segments_.Add({std::max(start_ns, cursor_ns), end_ns, row_, mechanism, 0, 0}, max);
}

void StepLane::OnOthersCall(const Event& event, int64_t waits_until_ns) {
  if (!in_loop() || !in_backward()) return;
  const HostCall call = static_cast<HostCall>(event.what);
  if (event.thread != stand_in_) {
    if (stand_in_called_ || (call != HostCall::kLaunchKernel && call != HostCall::kLaunchGraph)) return;
    stand_in_ = event.thread;
    stand_in_ns_ = 0;
    stand_in_gc_ns_ = 0;
  }
  stand_in_called_ = true;
  // Between two calls that follow on each other it makes the next one ready.
  const int64_t after_ns = event.start_ns - stand_in_ns_;
  if (stand_in_ns_ > meter_.mark_ns() && after_ns > 0 && after_ns <= SegmentList::kLaunchingNs) {
    AddCallPart(stand_in_ns_, event.start_ns, Mechanism::kNative, StretchMeter::Caller::kStandIn);
  }
  stand_in_ns_ = std::max(stand_in_ns_, event.end_ns);
  AddCall(event, waits_until_ns, true);
}

void StepLane::AddStandIns(int64_t start_ns, int64_t end_ns, Mechanism mechanism) {
  AddCallPart(start_ns, end_ns, mechanism, StretchMeter::Caller::kStandIn);
  stand_in_ns_ = std::max(stand_in_ns_, end_ns);
}

void StepLane::OnOthersEvent(const Event& event) {
  if (!in_loop() || event.thread != stand_in_ || stand_in_ == 0 || !in_backward()) return;
  if (event.kind == EventKind::kGilWait) {
    const int64_t cursor_ns = meter_.cursor_ns();
    const int64_t start_ns = std::max(event.start_ns, cursor_ns);
    const Mechanism mechanism = MechanismOf(static_cast<GilWaitKind>(event.what));
    if (meter_.AddCall(start_ns, event.end_ns, mechanism, StretchMeter::Caller::kStandIn) > 0) {
      stand_in_ns_ = std::max(stand_in_ns_, event.end_ns);
      AddWait(event, start_ns, event.end_ns, cursor_ns);
    }
  } else if (event.what == static_cast<uint8_t>(Bracket::kGc)) {
    if (event.kind == EventKind::kBegin) {
      stand_in_gc_ns_ = event.end_ns;
    } else if (event.kind == EventKind::kEnd && stand_in_gc_ns_ > 0) {
      AddStandIns(std::max(stand_in_gc_ns_, stand_in_ns_), event.end_ns, Mechanism::kGc);
      stand_in_gc_ns_ = 0;
    }
  }
}

}  // namespace trainperf
