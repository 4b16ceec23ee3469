// Marks: what the user's threads write, at the brackets that the hooks put around their loop.
//
//   marks::Enable();
//   marks::Begin(Bracket::kFetch, loader, ready, 0);      // on a user's thread: under 1 us
//   marks::End(Bracket::kFetch, kFetchedBatch);
//   marks::Disable();
//
// Begin/End/Step: any thread, without the GIL or with it; they never wait and never allocate but for a thread's first mark (its
// ring). Enable/Disable/Drain: the collector's owner.

#ifndef TRAINPERF_PROBE_MARKS_H_
#define TRAINPERF_PROBE_MARKS_H_

#include <cstdint>
#include <functional>

#include "trainperf/base/thread_table.h"
#include "trainperf/event/event.h"

namespace trainperf {
namespace marks {

void Enable();
void Disable();  // marks after it do nothing; rings stay until ReleaseRings
bool enabled();
void ReleaseRings();  // frees the rings of all threads; no mark and no GIL hook may run

void Begin(Bracket bracket, uint32_t object, int64_t value, uint8_t flags, Phase phase = Phase::kOther);
void End(Bracket bracket, int64_t value, Phase phase = Phase::kOther);
void Step();

// The calling thread's slot, cached in TLS; nullptr when the table is full. tstate_id: 0 when the thread has none.
ThreadInfo* CurrentThread();
ThreadId CurrentThreadId();

struct Stats {
  int64_t marks;
  int64_t cost_ns;   // marks x the calibrated cost of one
  uint64_t dropped;  // rings full
};
Stats stats();

}  // namespace marks
}  // namespace trainperf

#endif  // TRAINPERF_PROBE_MARKS_H_
