#include "trainperf/probe/cuda/launch_calls.h"

#include <algorithm>

namespace trainperf {

void LaunchCalls::Remember(const Event& call) {
  if (call.value == 0) return;
  const auto correlation = static_cast<uint64_t>(call.value);
  Call& slot = calls_[correlation % kCalls];
  // A batch's calls come one thread after the other, and some 20 ids go by for each launch of torch's: in a batch of
  // 0.1 s a later thread's call may be the older one.
  if (slot.correlation > correlation) return;
  const bool launches = static_cast<HostCall>(call.what) == HostCall::kLaunchKernel && (call.flags & kCallFailed) == 0;
  slot = {correlation, call.start_ns, launches, false};
}

bool LaunchCalls::Find(uint64_t correlation, int64_t* call_start_ns) const {
  const Call& call = calls_[correlation % kCalls];
  *call_start_ns = call.correlation == correlation ? call.start_ns : 0;
  return call.correlation >= correlation;
}

bool LaunchCalls::Saw(uint64_t correlation, int64_t* call_start_ns) {
  Call& call = calls_[correlation % kCalls];
  if (call.correlation == correlation) call.seen = true;
  return Find(correlation, call_start_ns);
}

int64_t LaunchCalls::UnseenSince(int64_t from_ns, int64_t to_ns) const {
  const auto within = [&](const Call& call) {
    return call.launches && call.start_ns >= from_ns && call.start_ns < to_ns;
  };
  int64_t last_seen_ns = from_ns;
  for (const Call& call : calls_) {
    if (within(call) && call.seen) last_seen_ns = std::max(last_seen_ns, call.start_ns);
  }
  return std::count_if(calls_.begin(), calls_.end(),
                       [&](const Call& call) { return within(call) && !call.seen && call.start_ns >= last_seen_ns; });
}

}  // namespace trainperf
