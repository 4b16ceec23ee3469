// The scripted libcupti's GPU in small: calls of the calling thread, and streams that work in real time.

#include <unistd.h>

#include <algorithm>

#include "trainperf/testing/fake_cupti.h"
#include "trainperf/testing/fake_cupti_state.h"

#pragma GCC visibility push(default)

namespace {

namespace cupti = trainperf::cupti;
using fakecupti::Get;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr uint32_t kStreamSynchronize = 131;
constexpr uint32_t kLaunchKernel = 211;
constexpr uint32_t kDriverLaunchKernel = 307;
constexpr uint32_t kMemcpyAsync = 41;
constexpr int64_t kQueueNs = 5'000;  // from a launch's end to the earliest start of its kernel

uint32_t NextCorrelation() {
  const uint32_t id = Get().next_correlation++;
  return id != 0 ? id : Get().next_correlation++;  // 0 is none
}

uint64_t Ticks(int64_t monotonic_ns) { return fakecupti_ticks_at(monotonic_ns); }

// Puts work into a stream: when it starts and ends, as the clock reads then.
void Enqueue(uint32_t stream, int64_t from_ns, int64_t gpu_ns, int64_t* start_ns, int64_t* end_ns) {
  int64_t& free_ns = Get().stream_free_ns[stream];
  *start_ns = std::max(free_ns, from_ns + kQueueNs);
  *end_ns = free_ns = *start_ns + gpu_ns;
}

void PutCallNow(int driver, uint32_t cbid, uint32_t correlation, int64_t start_ns, int64_t end_ns, uint32_t returned) {
  fakecupti_put_call(driver, cbid, fakecupti::ThreadId(), correlation, Ticks(start_ns), Ticks(end_ns), returned,
                     static_cast<uint32_t>(getpid()));
}

}  // namespace

uint32_t fakecupti_launch(const char* name, uint32_t stream, int64_t gpu_ns) {
  const Lock lock(Get().mutex);
  const int64_t start_ns = fakecupti::MonotonicNs();
  const uint32_t correlation = NextCorrelation();
  int64_t from = 0, until = 0;
  const int64_t end_ns = fakecupti::MonotonicNs();
  Enqueue(stream, end_ns, gpu_ns, &from, &until);
  fakecupti_put_kernel(0, stream, correlation, name, Ticks(from), Ticks(until), 0, 1);
  if (Get().nested_driver) PutCallNow(1, kDriverLaunchKernel, correlation, start_ns, end_ns, 0);
  PutCallNow(0, kLaunchKernel, correlation, start_ns, fakecupti::MonotonicNs(), 0);
  return correlation;
}

uint32_t fakecupti_copy(uint64_t bytes, int to_device, int pageable, uint32_t stream, int64_t gpu_ns) {
  int64_t start_ns = fakecupti::MonotonicNs(), from = 0, until = 0;
  uint32_t correlation = 0;
  {
    const Lock lock(Get().mutex);
    correlation = NextCorrelation();
    Enqueue(stream, start_ns, gpu_ns, &from, &until);
    const int memory = pageable != 0 ? 1 : 2;
    fakecupti_put_copy(0, stream, correlation, to_device != 0 ? 1 : 2, to_device != 0 ? memory : 3,
                       to_device != 0 ? 3 : memory, bytes, Ticks(from), Ticks(until), 0);
  }
  if (pageable != 0) fakecupti::SleepUntilNs(until);
  const Lock lock(Get().mutex);
  PutCallNow(0, kMemcpyAsync, correlation, start_ns, fakecupti::MonotonicNs(), 0);
  return correlation;
}

void fakecupti_synchronize() {
  const int64_t start_ns = fakecupti::MonotonicNs();
  int64_t until_ns = start_ns;
  {
    const Lock lock(Get().mutex);
    for (const auto& [stream, free_ns] : Get().stream_free_ns) until_ns = std::max(until_ns, free_ns);
  }
  fakecupti::SleepUntilNs(until_ns);
  const Lock lock(Get().mutex);
  const uint32_t correlation = NextCorrelation();
  const int64_t end_ns = fakecupti::MonotonicNs();
  fakecupti_put_sync(cupti::kSyncStream, correlation, Ticks(start_ns), Ticks(end_ns));
  PutCallNow(0, kStreamSynchronize, correlation, start_ns, end_ns, 0);
}

void fakecupti_call(int driver, uint32_t cbid, int64_t ns, uint32_t returned) {
  const int64_t start_ns = fakecupti::MonotonicNs();
  const int64_t end_ns = fakecupti::SleepUntilNs(start_ns + ns);
  const Lock lock(Get().mutex);
  PutCallNow(driver, cbid, NextCorrelation(), start_ns, end_ns, returned);
}

void fakecupti_overhead_call(uint32_t overhead, int64_t ns) {
  const int64_t start_ns = fakecupti::MonotonicNs();
  const int64_t end_ns = fakecupti::SleepUntilNs(start_ns + ns);
  const Lock lock(Get().mutex);
  const uint32_t correlation = NextCorrelation();
  int64_t from = 0, until = 0;
  fakecupti_put_overhead(overhead, fakecupti::ThreadId(), correlation, Ticks(start_ns), Ticks(end_ns));
  Enqueue(7, end_ns, 1000, &from, &until);
  fakecupti_put_kernel(0, 7, correlation, "loaded_late", Ticks(from), Ticks(until), 0, 1);
  PutCallNow(0, kLaunchKernel, correlation, start_ns, fakecupti::MonotonicNs(), 0);
}

#pragma GCC visibility pop
