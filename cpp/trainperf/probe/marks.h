// Marks: what the user's threads write, at the brackets that the hooks put around their loop.
//
//   marks::Enable();
//   marks::Begin(Bracket::kFetch, loader, ready, 0);      // on a user's thread: under 1 us
//   marks::End(Bracket::kFetch, kFetchedBatch);
//   marks::Disable();
//
// Begin/End/Step: any thread, with the GIL or without; they never wait, and allocate only at a thread's first mark (its
// ring). A thread gets a ring when it fetches, trains, brackets a phase or a callback, or by WatchThread(): it is a
// watched thread. Garbage collections, log records and checkpoints of other threads are not marked.
// Enable/Disable/AwaitLast/ReleaseRings: one thread.

#ifndef TRAINPERF_PROBE_MARKS_H_
#define TRAINPERF_PROBE_MARKS_H_

#include <algorithm>
#include <cstdint>

#include "trainperf/base/spsc_ring.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/event/event.h"

namespace trainperf {
namespace marks {

void Enable();
void Disable();    // also what a forked child does: marks after it do nothing
void AwaitLast();  // after Disable(): until no thread is in the middle of a mark. Without a GIL some may be.
bool enabled();
// Takes the rings from their threads, for the next watch. Marks must be disabled, the last awaited, the GIL hook out.
void ReleaseRings();
// Likewise of one thread, if it has ended and its ring is drained. Called by the rings' consumer.
void ReleaseRingOfDead(ThreadId id);

// Makes another thread a watched one. False: there are as many as there may be. Called by the rings' consumer.
bool WatchThread(ThreadId id);

// Whether this kernel tells how long a thread waited for a CPU (/proc/.../schedstat).
bool CanReadRunDelay();
// How long the thread that makes it has waited for a CPU, ever. It keeps the file open: to find it anew takes ten times
// as long as to read it.
class RunDelay {
 public:
  RunDelay();
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  int64_t Ns() const;  // -1: it is not told

 private:
  const int fd_;
};

void Begin(Bracket bracket, uint32_t object, int64_t value, uint8_t flags, Phase phase = Phase::kOther);
int64_t End(Bracket bracket, int64_t value, Phase phase = Phase::kOther);  // when, by NowNs(); 0: nothing was marked
void Step();

// For wrappers in C, which cost less around a mark than those in Python: a timed mark counts from EnterC() on. It is
// called first, and what it returns (0: the next mark is not timed) is handed on.
int64_t EnterC();
void BeginFromC(Bracket bracket, uint32_t object, uint8_t flags, int64_t entered_ns);
int64_t EndFromC(Bracket bracket, int64_t value, int64_t entered_ns);

// A log record, for wrappers in C: its bracket, but of many in a row (log_burst.h), which share one. What lies within
// one is a part of it.
void RecordBegins(int64_t entered_ns);
void RecordEnds();
// Whether many share one. With a traced device each has its own: the host's calls to it would come before theirs.
void SumRecords(bool on);
// What the calling thread has put off, before it tells of something by itself. Safe in the GIL hook.
void PushRecords();
// When the oldest record began that its thread is in and has yet to tell of; INT64_MAX: none.
int64_t PutOffSinceNs();

// The calling thread's clocks now, as a mark has them. Leaves no mark but those that were put off, and makes no thread
// watched.
Event ClocksHere(EventKind kind);

// How long the calling thread has been, so far, in what keeps its name in every phase: collections, waits for the GIL,
// and for a CPU. Only differences mean anything.
struct NamedTime {
  int64_t gc_ns;
  int64_t gil_wait_ns;
  int64_t run_delay_ns;  // but what it waited for a CPU within a wait for the GIL

  int64_t Since(const NamedTime& before) const {
    return gc_ns - before.gc_ns + gil_wait_ns - before.gil_wait_ns +
           std::max<int64_t>(0, run_delay_ns - before.run_delay_ns);
  }
};
NamedTime NamedTimeHere();
// How long it has been, so far, in fetches and in starting their loaders; of nested ones the outermost counts.
int64_t FetchTimeHere();

// A collection on the calling thread: leaves marks, and adds to its NamedTime what of it was no wait.
void CollectionBegins(int64_t generation);
void CollectionEnds(int64_t collected);

// What the calling thread does until Mute(false) leaves no marks, but the ends of brackets that began before: code that
// runs inside the loop and is not the loop's. Where one is within another, until the outermost ends.
void Mute(bool on);

// The calling thread's slot, cached in thread-local storage; nullptr when the table is full. Safe in the GIL hook.
ThreadInfo* CurrentThread();
ThreadId CurrentThreadId();

// How a thread learns its thread state's id (CPython's `PyThreadState.id`); without it, 0.
void SetIdentity(uint64_t (*tstate_id_of_this_thread)());

struct Stats {
  int64_t marks;
  int64_t cost_ns;   // of those from Python and from C: marks x (the mean of every 17th + the call); and of `summed`
  int64_t summed;    // log records that left no marks of their own
  uint64_t dropped;  // events that found their ring full
  uint64_t refused;  // marks of threads that got no ring: more threads than rings
};
Stats stats();

}  // namespace marks
}  // namespace trainperf

#endif  // TRAINPERF_PROBE_MARKS_H_
