// The words of the vocabulary, as users and the run file spell them, and the table that makes a cause of a phase and a
// mechanism.

#ifndef TRAINPERF_EVENT_NAMES_H_
#define TRAINPERF_EVENT_NAMES_H_

#include <array>

#include "trainperf/event/event.h"

namespace trainperf {

inline constexpr std::array<const char*, kPhaseCount> kPhaseNames = {
    "fetch", "transfer", "forward", "backward", "optimizer", "checkpoint", "validation", "logging", "other"};

inline constexpr std::array<const char*, kMechanismCount> kMechanismNames = {
    "gil_wait", "stop_the_world", "object_lock", "gc",          "gpu_wait", "launch", "cuda_alloc", "module_load",
    "copy",     "collective",     "throttled",   "descheduled", "blocked",  "python", "native",     "unknown"};

inline constexpr std::array<const char*, kCauseCount> kCauseNames = {
    "data_wait",   "h2d_copy",       "gpu_wait",    "launch", "cuda_alloc", "module_load", "collective",
    "gil_wait",    "stop_the_world", "object_lock", "gc",     "checkpoint", "validation",  "logging",
    "descheduled", "throttled",      "blocked_io",  "python", "compute",    "unknown"};

inline constexpr std::array<const char*, kSampleStateCount> kSampleStateNames = {"python",  "native",   "parallel",
                                                                                 "blocked", "gil_wait", "unknown"};

inline constexpr std::array<const char*, kHostCallCount> kHostCallNames = {
    "launch_kernel", "launch_graph", "memcpy", "memset",       "stream_sync", "event_sync",
    "device_sync",   "alloc",        "free",   "pinned_alloc", "pinned_free", "module_load",
    "jit",           "queue_full",   "cpu_op", "python"};

// Why the host spent time in a call.
constexpr Mechanism MechanismOf(HostCall call) {
  switch (call) {
    case HostCall::kLaunchKernel:
    case HostCall::kLaunchGraph:
    case HostCall::kMemset:
      return Mechanism::kLaunch;
    case HostCall::kMemcpy:
      return Mechanism::kCopy;
    case HostCall::kStreamSync:
    case HostCall::kEventSync:
    case HostCall::kDeviceSync:
    case HostCall::kQueueFull:
      return Mechanism::kGpuWait;
    case HostCall::kAlloc:
    case HostCall::kFree:
    case HostCall::kPinnedAlloc:
    case HostCall::kPinnedFree:
      return Mechanism::kCudaAlloc;
    case HostCall::kModuleLoad:
    case HostCall::kJit:
      return Mechanism::kModuleLoad;
    case HostCall::kCpuOp:
      return Mechanism::kNative;
    case HostCall::kPython:
      return Mechanism::kPython;
  }
  return Mechanism::kUnknown;
}

constexpr Mechanism MechanismOf(GilWaitKind kind) {
  switch (kind) {
    case GilWaitKind::kWorldStop:
      return Mechanism::kWorldStop;
    case GilWaitKind::kLock:
      return Mechanism::kObjectLock;
    case GilWaitKind::kTake:
    case GilWaitKind::kHandOff:
    case GilWaitKind::kEstimate:
      break;
  }
  return Mechanism::kGilWait;
}

// What the user is told of time spent in `phase` because of `mechanism`. `feeds_device`: the step launches work on a
// device, so native host time is launching; otherwise the CPU does the training and native time is compute.
constexpr Cause CauseOf(Phase phase, Mechanism mechanism, bool feeds_device) {
  switch (mechanism) {  // these keep their name in every phase
    case Mechanism::kGilWait:
      return Cause::kGilWait;
    case Mechanism::kWorldStop:
      return Cause::kWorldStop;
    case Mechanism::kObjectLock:
      return Cause::kObjectLock;
    case Mechanism::kGc:
      return Cause::kGc;
    case Mechanism::kDescheduled:
      return Cause::kDescheduled;
    case Mechanism::kThrottled:
      return Cause::kThrottled;
    default:
      break;
  }
  switch (phase) {  // what is left of these is the phase's own
    case Phase::kFetch:
      return Cause::kDataWait;
    case Phase::kTransfer:
      return Cause::kH2dCopy;
    case Phase::kCheckpoint:
      return Cause::kCheckpoint;
    case Phase::kValidation:
      return Cause::kValidation;
    case Phase::kLogging:
      return Cause::kLogging;
    default:
      break;
  }
  switch (mechanism) {
    case Mechanism::kGpuWait:
      return Cause::kGpuWait;
    case Mechanism::kLaunch:
      return Cause::kLaunch;
    case Mechanism::kCudaAlloc:
      return Cause::kCudaAlloc;
    case Mechanism::kModuleLoad:
      return Cause::kModuleLoad;
    case Mechanism::kCopy:
      return Cause::kH2dCopy;
    case Mechanism::kCollective:
      return Cause::kCollective;
    case Mechanism::kBlocked:
      return Cause::kBlockedIo;
    case Mechanism::kPython:
      return Cause::kPython;
    case Mechanism::kNative:
      return feeds_device ? Cause::kLaunch : Cause::kCompute;
    default:
      return Cause::kUnknown;
  }
}

}  // namespace trainperf

#endif  // TRAINPERF_EVENT_NAMES_H_
