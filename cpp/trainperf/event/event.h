// The vocabulary of the core: what producers write and the timeline reads.
//
//   Event e{};
//   e.kind = EventKind::kBegin;
//   e.what = static_cast<uint8_t>(Bracket::kFetch);
//   e.start_ns = e.end_ns = NowNs();
//   ring.TryPush(e);
//
// Events are plain data of 56 bytes. All times are CLOCK_MONOTONIC in nanoseconds.

#ifndef TRAINPERF_EVENT_EVENT_H_
#define TRAINPERF_EVENT_EVENT_H_

#include <cstdint>
#include <type_traits>

#include "trainperf/base/ids.h"

namespace trainperf {

enum class EventKind : uint8_t {
  kStep,     // run.step(): an explicit step boundary on `thread` at end_ns. Carries clocks, like a bracket.
  kBegin,    // a bracket opens on `thread`; `what` is a Bracket; start_ns == end_ns
  kEnd,      // the bracket closes
  kGilWait,  // `thread` waited in [start_ns, end_ns]; `what` is a GilWaitKind, which says what `object` and `stack` are
  kSample,   // where `thread` was at end_ns; `what` is a SampleState; stands for [start_ns, end_ns]
  kHold,     // thread `object` held the GIL at end_ns, in `stack`; stands for [start_ns, end_ns]
  kHost,     // the cgroup's throttled time: `value` is its cumulative ns at end_ns; thread is 0
  kCall,     // `thread` spent [start_ns, end_ns] in a call; `what` is a HostCall, `value` its correlation (0: none),
             // `object` the stream. Those of one thread do not overlap
  kBeside,   // thread `object` stood in `stack` at end_ns, while the watched one slept in a lock; for [start_ns,
             // end_ns]; `what` is a BesideSign
  kWatchBegins,  // on `thread`, at end_ns. Carries clocks, like a bracket. Also where a loop may go on.
  kWatchEnds,    // the same
};
inline constexpr int kEventKindCount = 11;

// What the thread of a kGilWait event waited for: the GIL, with its holder in `object` and the holder's stack in
// `stack`; or, on a free-threaded build, what takes its place.
enum class GilWaitKind : uint8_t {
  kTake,
  kHandOff,    // the GIL had been asked of it: until another has it
  kEstimate,   // by the sampler
  kWorldStop,  // all threads were stopped, by `object`, whose stack is in `stack`
  kLock,       // an object's lock, or another of the interpreter's; `object` held it (0: not known), `stack` is the
               // waiting thread's own
};

// What a kCall event's call does. Of CUDA's runtime and driver (probe/cuda), or of a trace (trace/).
enum class HostCall : uint8_t {
  kLaunchKernel,
  kLaunchGraph,
  kMemcpy,
  kMemset,
  kStreamSync,  // the host waits for a stream
  kEventSync,
  kDeviceSync,
  kAlloc,  // of device memory
  kFree,
  kPinnedAlloc,
  kPinnedFree,
  kModuleLoad,  // lazy loading too
  kJit,
  kQueueFull,  // a launch that waits until the device has room: the device has work
  kCpuOp,      // trace: a torch operator, less the calls in it
  kPython,     // trace: a Python function, less what it calls
};
inline constexpr int kHostCallCount = 16;
// There are many of them in a step, and they are told only where the work that they launch is traced.
constexpr bool IsLaunch(HostCall call) {
  return call == HostCall::kLaunchKernel || call == HostCall::kLaunchGraph || call == HostCall::kMemset;
}

// What a bracket is about. The wrapper in python/trainperf/hooks that writes it is named beside it.
enum class Bracket : uint8_t {
  kFetch,        // next() of a DataLoader iterator. object: loader. value: begin = batches ready (-1: not known); end =
                 // FetchEnd, and an Awaited
  kLoaderStart,  // iter(loader): worker start-up. object: loader
  kBackward,     // torch.autograd.backward
  kOptimizer,    // Optimizer.step. object: which optimizer
  kCheckpoint,   // torch.save. end value: bytes written (-1: not known)
  kLogging,      // a log record or metric being written
  kEval,  // a module went from train to eval mode (begin) or back (end). object: module. An unmatched begin is normal.
  kGc,    // a garbage collection. value: generation (begin), objects collected (end)
  kCompile,    // torch.compile compiling
  kUserPhase,  // run.phase("..."): `phase` holds the Phase
  kCallback,   // a framework's callback, the outermost (integrations/). object: which
};
inline constexpr int kBracketCount = 11;

// kFetchedBehind: a batch, but those that were ready at its begin were later ones: for this fetch none was ready.
enum FetchEnd : int64_t { kFetchedBatch = 0, kFetchExhausted = 1, kFetchRaised = 2, kFetchedBehind = 3 };

// Of a fetch that waited for one of its loader's workers.
struct Awaited {
  // Its number, as in torch's get_worker_info(), where the others had nothing left to do; else -1.
  int32_t worker = -1;
  // Workers that had not come to the end of their part of a stream; all, where there is none.
  int32_t reading = 0;
  // How long it was so; 0: nothing is known.
  int64_t wait_ns = 0;
};

// Both in an event's value: the end in 8 bits, the worker in 12, those that read in 12, microseconds above.
inline constexpr int32_t kMaxAwaitedWorkers = (1 << 12) - 2;
inline constexpr int64_t kMaxAwaitedNs = ((int64_t{1} << 31) - 1) * 1000;
inline constexpr int64_t FetchValue(FetchEnd end, const Awaited& awaited) {
  if (awaited.worker < -1 || awaited.worker > kMaxAwaitedWorkers || awaited.reading < 0 ||
      awaited.reading > kMaxAwaitedWorkers) {
    return end;
  }
  const int64_t wait_ns = awaited.wait_ns < kMaxAwaitedNs ? awaited.wait_ns : kMaxAwaitedNs;
  return ((wait_ns / 1000) << 32) | (int64_t{awaited.reading} << 20) | (int64_t{awaited.worker + 1} << 8) |
         static_cast<int64_t>(end);
}
inline constexpr FetchEnd FetchEndOf(int64_t value) { return static_cast<FetchEnd>(value & 0xff); }
inline constexpr Awaited AwaitedOf(int64_t value) {
  return {static_cast<int32_t>((value >> 8) & 0xfff) - 1, static_cast<int32_t>((value >> 20) & 0xfff),
          (value >> 32) * 1000};
}

// Event::flags
inline constexpr uint8_t kGradDisabled = 1;  // kBegin of kFetch or kEval: torch.is_grad_enabled() was false
inline constexpr uint8_t kHasRunDelay = 2;   // run_delay_ns was read at this mark (else carry the last one)
// kGilWait: a slice of a wait that goes on.
inline constexpr uint8_t kGilStillHeld = 8;
inline constexpr uint8_t kCallFailed = 16;  // kCall: it returned an error (a cudaMalloc that is tried again)
// A mark without a reading of the thread's CPU time, as those of a trace: cpu_ns says nothing.
inline constexpr uint8_t kNoCpuTime = 32;
// A mark that was told after its time: it may come late.
inline constexpr uint8_t kPutOff = 64;

// What the sampler saw a thread doing.
enum class SampleState : uint8_t {
  kPython,    // on CPU or runnable, and the GIL's holder
  kNative,    // on CPU or runnable, not the holder
  kParallel,  // asleep inside an OpenMP runtime: waiting for the process' own compute threads
  kBlocked,   // asleep in system call `value` for another reason
  kGilWait,   // waiting for the GIL
  kUnknown,   // could not be read
};
inline constexpr int kSampleStateCount = 6;
// Added to that system call's number where it is a futex's, and a timeout ends it within kTimedWaitNs: one that is
// there for the worst case is longer.
inline constexpr int64_t kTimedWait = 1 << 16;
inline constexpr int64_t kTimedWaitNs = 100'000'000;

// Whether a thread can be the one that a sleeper waits for: to let it go on, it must run.
enum class BesideSign : uint8_t {
  kNotKnown,
  kStill,    // a wait of the sleeper's ended, and it has not run: another thread, or process, did that
  kWoke,     // it ran between two looks, and a wait ended between them
  kStirred,  // it ran, and the wait went on
  kWorks,    // it is on CPU for a part of the time
};
inline constexpr int kBesideSignCount = 5;

enum class Phase : uint8_t {
  kFetch,
  kTransfer,
  kForward,
  kBackward,
  kOptimizer,
  kCheckpoint,
  kValidation,
  kLogging,
  kOther,
};
inline constexpr int kPhaseCount = 9;

enum class Mechanism : uint8_t {
  kGilWait,
  kWorldStop,
  kObjectLock,
  kGc,
  kGpuWait,
  kLaunch,
  kCudaAlloc,
  kModuleLoad,
  kCopy,
  kCollective,
  kThrottled,
  kDescheduled,
  kBlocked,
  kPython,
  kNative,
  kUnknown,
};
inline constexpr int kMechanismCount = 16;

enum class Cause : uint8_t {
  kDataWait,
  kH2dCopy,
  kGpuWait,
  kLaunch,
  kCudaAlloc,
  kModuleLoad,
  kCollective,
  kGilWait,
  kWorldStop,
  kObjectLock,
  kGc,
  kCheckpoint,
  kValidation,
  kLogging,
  kDescheduled,
  kThrottled,
  kBlockedIo,
  kPython,
  kCompute,
  kUnknown,
};
inline constexpr int kCauseCount = 20;

struct Event {
  int64_t start_ns;
  int64_t end_ns;  // events of one ring are in order of it
  int64_t cpu_ns;  // marks: CPU time of `thread` so far (CLOCK_THREAD_CPUTIME_ID)
  int64_t
      run_delay_ns;  // marks with kHasRunDelay: run-queue delay of `thread` so far; kGilWait: the delay inside the wait
  int64_t value;
  uint32_t object;
  ThreadId thread;
  StackId stack;
  EventKind kind;
  uint8_t what;
  uint8_t phase;
  uint8_t flags;
};
static_assert(sizeof(Event) == 56 && std::is_trivially_copyable_v<Event>);

// What a thread writes itself, where it steps or a bracket opens or closes.
inline bool IsMark(const Event& event) {
  return event.kind == EventKind::kStep || event.kind == EventKind::kBegin || event.kind == EventKind::kEnd;
}

}  // namespace trainperf

#endif  // TRAINPERF_EVENT_EVENT_H_
