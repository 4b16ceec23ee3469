// What the timeline tells its sink: steps, and the details that hang below their causes.

#ifndef TRAINPERF_TIMELINE_RECORDS_H_
#define TRAINPERF_TIMELINE_RECORDS_H_

#include <cstdint>
#include <vector>

#include "trainperf/event/device_op.h"
#include "trainperf/event/event.h"
#include "trainperf/timeline/device_records.h"

namespace trainperf {

enum StepFlag : uint32_t {
  kDataStarved = 1 << 0,
  kGilContended = 1 << 1,
  kHostStalled = 1 << 2,
  kIncomplete = 1 << 3,  // events of this step were dropped
  kWarmUp = 1 << 4,      // torch.compile ran in it, or it is the run's first: kept out of medians
  kHasValidation = 1 << 5,
  kHasCheckpoint = 1 << 6,
  kHasLoaderStart = 1 << 7,  // an epoch began in it: iter(loader), or a loader's first fetch
};

// A piece of a step's own timeline, in order, without holes.
struct Segment {
  int64_t start_ns;
  int64_t end_ns;
  Phase phase;
  Mechanism mechanism;  // kUnknown: whatever of the phase is not a GIL wait or a collection (the step's sums split it)
  ThreadId thread;      // gil_wait: the holder
  StackId stack;        // gil_wait: the holder's
};

struct StepRecord {
  int64_t index;  // from 0
  int64_t start_ns;
  int64_t end_ns;
  int64_t ns[kPhaseCount][kMechanismCount];  // sums to end_ns - start_ns, exactly
  uint32_t flags;
  int32_t fetches;  // batches fetched on the step thread, validation's not counted
  int32_t backwards;
  int32_t optimizer_steps;
  int64_t compile_ns;
  std::vector<Segment> segments;  // at most TimelineOptions::max_segments; the smallest neighbours are merged beyond
  // The run is one whose host feeds a device: its native time is `launch`, in the steps before this one too.
  bool feeds_device;
  std::vector<DeviceStep> devices;  // those that had work so far; in order of their number
  std::vector<CallSum> calls;
};

// Calls visit(Phase, Mechanism, ns) for the parts that are not zero: some ten of them.
template <typename Visit>
void ForEachPart(const StepRecord& step, Visit&& visit) {
  for (int p = 0; p < kPhaseCount; ++p) {
    int64_t any = 0;
    for (const int64_t ns : step.ns[p]) any |= ns;
    if (any == 0) continue;  // most phases
    for (int m = 0; m < kMechanismCount; ++m) {
      if (step.ns[p][m] != 0) visit(static_cast<Phase>(p), static_cast<Mechanism>(m), step.ns[p][m]);
    }
  }
}

enum class DetailKind : uint8_t {
  kGilWait,      // the step thread waited: `thread` and `stack` are the holder's; `count` is how many waits ended
  kSample,       // where the step thread was: `state`, `code` is the system call when blocked, `stack` its own
  kHold,         // who held the GIL, whether anybody waited or not: `thread`, `stack`; phase is the step thread's
  kGc,           // `code` is the generation
  kCall,         // a sample that fell into a call of the step thread: `code` is the HostCall, `stack` its own
  kIdleGilWait,  // a device (`code`) idled while whoever feeds it waited for the GIL: `thread`, `stack` are the
                 // holder's
  kBeside,       // where another thread was while the step thread slept in a lock (a queue's too): `thread`, `stack`;
                 // `code` is a BesideSign
  kWorldStop,    // all threads were stopped: `thread` and `stack` are those of who did it; `count` as for kGilWait
  kObjectLock,   // the step thread waited for a lock of the interpreter's: `thread` held it, `stack` is its own
};
inline constexpr int kDetailKindCount = 9;

struct Detail {
  DetailKind kind;
  Phase phase;
  SampleState state;
  ThreadId thread;
  StackId stack;
  int32_t code;
  int64_t step;  // -1: outside of steps
  int64_t ns;
  int64_t count;
};

// One long thing that happened once in a while.
enum class SpanKind : uint8_t {
  kLoaderStart,
  kFirstFetch,
  kValidation,
  kCheckpoint,
  kLogging,
  kCompile,
  kGc,
  kCallback
};
inline constexpr int kSpanKindCount = 8;

struct Span {
  SpanKind kind;
  int64_t step;  // -1: outside of steps
  int64_t start_ns;
  int64_t end_ns;
  int64_t cpu_ns;   // of the thread, in it
  uint32_t object;  // loader, module ...
  int64_t value;    // checkpoint: bytes; gc: generation; else 0
  ThreadId thread;
};

// A fetch from a DataLoader, on any thread.
struct FetchRecord {
  uint32_t loader;
  int64_t step;  // -1: outside of steps, or on another thread than the step thread
  int64_t start_ns;
  int64_t end_ns;
  int64_t cpu_ns;
  int64_t gil_wait_ns;
  int32_t ready;  // batches that were ready when it was asked for; -1: not known
  Awaited awaited;
  bool first;  // of its iterator
  bool exhausted;
  bool validation;
  bool on_step_thread;
};

class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void OnStep(const StepRecord& step) = 0;
  virtual void OnDetail(const Detail& detail) = 0;
  virtual void OnSpan(const Span& span) = 0;
  virtual void OnFetch(const FetchRecord& fetch) = 0;
  // All so far is void, and comes anew: it was an evaluation before training. At most once, before the first of
  // training.
  virtual void OnTakenBack() = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_RECORDS_H_
