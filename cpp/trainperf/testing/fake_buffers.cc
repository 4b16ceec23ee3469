// The scripted libcupti's clock, records and buffers.

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainperf/testing/fake_cupti_state.h"

namespace fakecupti {
namespace cupti = trainperf::cupti;
namespace {

constexpr uint32_t kCutOffKernel = 63;  // a kind that nobody reads

int64_t ReadClock(clockid_t clock) {
  timespec ts;
  clock_gettime(clock, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

void Complete(const Buffer& buffer) {
  (buffer.to_thief ? Get().to_thief : Get().delivered) += buffer.records;
  buffer.owner(nullptr, 0, buffer.at, buffer.size, buffer.used);
}

void Work() {
  State& state = Get();
  for (;;) {
    Buffer buffer;
    {
      std::unique_lock<std::mutex> lock(state.queue_mutex);
      state.queue_changed.wait(lock, [&] { return state.worker_stop || !state.queue.empty(); });
      if (state.queue.empty()) return;
      buffer = state.queue.front();
      state.queue.pop_front();
      state.worker_busy = true;
    }
    Complete(buffer);
    {
      const std::lock_guard<std::mutex> lock(state.queue_mutex);
      state.worker_busy = false;
    }
    state.queue_changed.notify_all();
  }
}

void WaitForWorker() {
  State& state = Get();
  if (!state.worker.joinable()) return;
  std::unique_lock<std::mutex> lock(state.queue_mutex);
  state.queue_changed.wait(lock, [&] { return state.queue.empty() && !state.worker_busy; });
}

template <typename Record>
void SetTimes(uint8_t* at, uint64_t start, uint64_t end) {
  auto* record = reinterpret_cast<Record*>(at);
  record->start = start;
  record->end = end;
}

void Retire(Buffer* buffer) {
  if (buffer->at == nullptr) return;
  if (buffer->in_flight.empty()) {
    Deliver(*buffer);
  } else {
    Get().waiting.push_back(*buffer);
  }
  *buffer = Buffer();
}

}  // namespace

State& Get() {
  static State* const state = new State();
  return *state;
}

int64_t MonotonicNs() { return ReadClock(CLOCK_MONOTONIC); }

int64_t SleepUntilNs(int64_t monotonic_ns) {
  const timespec until = {static_cast<time_t>(monotonic_ns / 1'000'000'000),
                          static_cast<long>(monotonic_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
  return MonotonicNs();
}

void SpinUntilNs(int64_t monotonic_ns) {
  while (MonotonicNs() < monotonic_ns) {
  }
}

uint64_t TicksAt(int64_t monotonic_ns) {
  // CLOCK_REALTIME, but as a function of CLOCK_MONOTONIC, so that a test's times are exact.
  static const int64_t realtime_ns = ReadClock(CLOCK_REALTIME) - MonotonicNs();
  const State& state = Get();
  const int64_t ns = monotonic_ns + realtime_ns;
  const double scaled = static_cast<double>(ns) * state.ticks_per_ns;
  const int64_t ticks = state.ticks_per_ns == 1.0 ? ns : std::llround(scaled);
  return static_cast<uint64_t>(ticks + state.clock_offset);
}

uint64_t Now() { return Get().stopped_at != 0 ? Get().stopped_at : TicksAt(MonotonicNs()); }

uint32_t ThreadId() {
  return Get().thread_id_type == cupti::kThreadIdSystem ? static_cast<uint32_t>(syscall(SYS_gettid))
                                                        : static_cast<uint32_t>(pthread_self());
}

size_t RecordSize(uint32_t kind) {
  const uint32_t version = Get().version;
  switch (kind) {
    case cupti::kKindConcurrentKernel:
    case kCutOffKernel:
      return version < 130000 ? 208 : version < 130100 ? 216 : version < 130300 ? 224 : version < 130500 ? 232 : 248;
    case cupti::kKindMemcpy:
      return version < 26 ? 88 : version < 130500 ? 96 : 112;
    case cupti::kKindMemcpy2:
      return 96;
    case cupti::kKindMemset:
      return version < 130500 ? 88 : 104;
    case cupti::kKindSynchronization:
      return version < 26 ? 40 : 56;
    case cupti::kKindOverhead:
      return 56;
    case cupti::kKindJit:
      return 72;
    default:
      return 40;  // a call's; so too the MARKER that stands for kinds that nobody asked for
  }
}

bool Traced(uint32_t kind, int64_t cbid) {
  const State& state = Get();
  if (!state.kinds[kind]) return false;  // also a call that was switched on alone
  if (cbid < 0) return true;
  const auto& calls = kind == cupti::kKindDriver ? state.driver_calls : state.runtime_calls;
  const auto found = calls.find(static_cast<uint32_t>(cbid));
  return found == calls.end() || found->second;
}

bool NewBuffer(Buffer* buffer) {
  State& state = Get();
  *buffer = Buffer();
  if (state.requested == nullptr) return false;
  size_t max_records = 0;
  ++state.requests;
  state.requested(&buffer->at, &buffer->size, &max_records);
  if (buffer->at == nullptr) {
    ++state.null_buffers;
    if (state.version < cupti::kVersion12_9) ++state.crashes;
    return false;
  }
  if (state.attributes[cupti::kAttributeZeroedOut] == 0) memset(buffer->at, 0, buffer->size);
  return true;
}

uint8_t* Put(uint32_t kind, int64_t cbid, Buffer** into) {
  State& state = Get();
  if (cbid != INT64_MIN && !Traced(kind, cbid)) return nullptr;
  ++state.produced;
  const bool per_thread =
      state.version >= cupti::kVersion13_0 && state.attributes[cupti::kAttributePerThreadBuffers] != 0;
  Buffer& buffer = state.current[per_thread ? static_cast<uint64_t>(syscall(SYS_gettid)) : 0];
  const size_t size = RecordSize(kind);
  if (buffer.at != nullptr && buffer.used + size > buffer.size) Retire(&buffer);
  if (buffer.at == nullptr && !NewBuffer(&buffer)) {
    ++state.dropped;
    ++state.unread_dropped;
    return nullptr;
  }
  uint8_t* at = buffer.at + buffer.used;
  // Up to where the next one's kind will be, which ends the reading. What nobody uses is not touched, as with the real
  // one.
  const uint8_t* const next = std::min(at + size + sizeof(cupti::Record), buffer.at + buffer.size);
  if (std::any_of(static_cast<const uint8_t*>(at), next, [](uint8_t byte) { return byte != 0; })) ++state.dirty;
  memset(at, 0, size);
  reinterpret_cast<cupti::Record*>(at)->kind = kind;
  buffer.used += size;
  ++buffer.records;
  if (into != nullptr) *into = &buffer;
  return at;
}

void FinishDue() {
  State& state = Get();
  const uint64_t now = Now();
  const auto finish = [&](Buffer& buffer) {
    auto& flying = buffer.in_flight;
    const auto done = std::partition(flying.begin(), flying.end(),
                                     [&](const InFlight& record) { return record.due == 0 || record.due > now; });
    for (auto record = done; record != flying.end(); ++record) {
      SetTimes<cupti::KernelRecord>(record->record, record->start, record->end);
    }
    flying.erase(done, flying.end());
  };
  for (auto& [thread, buffer] : state.current) finish(buffer);
  for (Buffer& buffer : state.waiting) finish(buffer);
}

void CutOff() {
  FinishDue();
  const auto cut = [](Buffer& buffer) {
    for (const InFlight& record : buffer.in_flight)
      reinterpret_cast<cupti::Record*>(record.record)->kind = kCutOffKernel;
    buffer.in_flight.clear();
  };
  for (auto& [thread, buffer] : Get().current) cut(buffer);
  for (Buffer& buffer : Get().waiting) cut(buffer);
}

void Flush(bool forced) {
  State& state = Get();
  std::vector<Buffer> ready;
  {
    const std::lock_guard<std::recursive_mutex> lock(state.mutex);
    FinishDue();
    const auto take = [&](Buffer& buffer) {
      if (buffer.at == nullptr || buffer.used == 0 || (!forced && !buffer.in_flight.empty())) return false;
      ready.push_back(buffer);
      ready.back().in_flight.clear();
      buffer = Buffer();
      return true;
    };
    for (auto buffer = state.waiting.begin(); buffer != state.waiting.end();) {
      buffer = take(*buffer) ? state.waiting.erase(buffer) : std::next(buffer);
    }
    for (auto& [thread, buffer] : state.current) take(buffer);
    if (state.reverse) std::reverse(ready.begin(), ready.end());
    for (const Buffer& buffer : ready) Deliver(buffer);
  }
  WaitForWorker();
}

void Deliver(const Buffer& full) {
  State& state = Get();
  Buffer buffer = full;
  buffer.owner = state.completed;
  buffer.to_thief = state.stolen;
  if (!state.worker_on) {
    Complete(buffer);
    return;
  }
  if (!state.worker.joinable()) {
    state.worker_stop = false;
    state.worker = std::thread(&Work);
  }
  {
    const std::lock_guard<std::mutex> lock(state.queue_mutex);
    state.queue.push_back(buffer);
  }
  state.queue_changed.notify_all();
}

void StopWorker() {
  State& state = Get();
  {
    const std::lock_guard<std::mutex> lock(state.queue_mutex);
    state.worker_stop = true;
  }
  state.queue_changed.notify_all();
  if (state.worker.joinable()) state.worker.join();
}

}  // namespace fakecupti
