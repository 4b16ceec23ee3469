// The scripted libcupti's controls.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "trainperf/testing/fake_cupti.h"
#include "trainperf/testing/fake_cupti_state.h"

#pragma GCC visibility push(default)

namespace {

namespace cupti = trainperf::cupti;
using fakecupti::Get;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr size_t kThiefsBuffer = 1 << 20;

std::set<uint8_t*>& ThiefsBuffers() {
  static auto* const buffers = new std::set<uint8_t*>();
  return *buffers;
}

void ThiefRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(malloc(kThiefsBuffer));
  ThiefsBuffers().insert(*buffer);
  *size = kThiefsBuffer;
  *max_records = 0;
}

void ThiefCompleted(void*, uint32_t, uint8_t* buffer, size_t, size_t) {
  if (ThiefsBuffers().erase(buffer) != 0) free(buffer);  // another's is never given back, as with Kineto
}

template <typename Record>
Record* New(uint32_t kind, int64_t cbid, fakecupti::Buffer** buffer = nullptr) {
  return reinterpret_cast<Record*>(fakecupti::Put(kind, cbid, buffer));
}

}  // namespace

void fakecupti_reset() {
  fakecupti::StopWorker();
  const Lock lock(Get().mutex);
  auto& state = Get();
  state.version = 130001;
  state.results.clear();
  state.calls.clear();
  state.all_results = 0;
  state.subscribed = state.other_subscriber = state.stolen = state.nested_driver = state.reverse = state.cut_off =
      false;
  state.other_name.clear();
  state.requested = nullptr;
  state.completed = nullptr;
  state.kinds.reset();
  state.callback = nullptr;
  for (auto& calls : state.called_back) calls.reset();
  state.runtime_calls.clear();
  state.driver_calls.clear();
  state.attributes = {{cupti::kAttributePerThreadBuffers, 1}};
  state.thread_id_type = 0;
  state.ticks_per_ns = 1;
  state.clock_offset = 0;
  state.stopped_at = 0;
  state.next_correlation = 1;
  state.current.clear();
  state.waiting.clear();
  state.hoard.clear();
  state.stream_free_ns.clear();
  state.unread_dropped = 0;
  state.produced = state.dropped = state.null_buffers = state.crashes = state.dirty = 0;
  state.requests = state.disordered = 0;
  state.delivered = state.to_thief = 0;
  state.worker_on = false;
  fakecupti_set_costs(0, 0, 0, 0);
}

void fakecupti_set_version(uint32_t version) {
  const Lock lock(Get().mutex);
  Get().version = version;
}

void fakecupti_set_result(const char* function, int result) {
  const Lock lock(Get().mutex);
  if (strcmp(function, "*") == 0) {
    Get().all_results = result;
  } else {
    Get().results[function] = result;
  }
}

void fakecupti_set_other_subscriber(const char* name) {
  const Lock lock(Get().mutex);
  Get().other_subscriber = name != nullptr;
  Get().other_name = name != nullptr ? name : "";
}

void fakecupti_set_clock(double ticks_per_ns, int64_t offset) {
  const Lock lock(Get().mutex);
  Get().ticks_per_ns = ticks_per_ns;
  Get().clock_offset = offset;
}

void fakecupti_step_clock(int64_t ticks) {
  const Lock lock(Get().mutex);
  Get().clock_offset += ticks;
  if (Get().stopped_at != 0) Get().stopped_at += static_cast<uint64_t>(ticks);
}

void fakecupti_set_now(uint64_t ticks) {
  const Lock lock(Get().mutex);
  Get().stopped_at = ticks;
}

uint64_t fakecupti_ticks_at(int64_t monotonic_ns) {
  const Lock lock(Get().mutex);
  return fakecupti::TicksAt(monotonic_ns);
}

void fakecupti_set_next_correlation(uint32_t id) {
  const Lock lock(Get().mutex);
  Get().next_correlation = id;
}

void fakecupti_set_worker(int on) {
  fakecupti::StopWorker();
  const Lock lock(Get().mutex);
  Get().worker_on = on != 0;
}

void fakecupti_set_reverse_delivery(int on) {
  const Lock lock(Get().mutex);
  Get().reverse = on != 0;
}

void fakecupti_set_costs(int64_t kernel_ns, int64_t call_ns, int64_t kind_ns, int64_t callback_ns) {
  Get().kernel_cost_ns = kernel_ns;
  Get().call_cost_ns = call_ns;
  Get().kind_cost_ns = kind_ns;
  Get().callback_cost_ns = callback_ns;
}

void fakecupti_set_cut_off(int on) {
  const Lock lock(Get().mutex);
  Get().cut_off = on != 0;
}

void fakecupti_set_nested_driver_calls(int on) {
  const Lock lock(Get().mutex);
  Get().nested_driver = on != 0;
}

void fakecupti_hoard(int buffers) {
  const Lock lock(Get().mutex);
  for (int i = 0; i < buffers; ++i) {
    fakecupti::Buffer buffer;
    if (fakecupti::NewBuffer(&buffer)) Get().hoard.push_back(buffer);
  }
  if (buffers > 0) return;
  for (const fakecupti::Buffer& buffer : Get().hoard) fakecupti::Deliver(buffer);
  Get().hoard.clear();
}

void fakecupti_steal_callbacks(int on) {
  const Lock lock(Get().mutex);
  Get().stolen = on != 0;
  if (on != 0) {
    Get().requested = &ThiefRequested;
    Get().completed = &ThiefCompleted;
  } else {
    Get().kinds.reset();
    Get().runtime_calls.clear();
    Get().driver_calls.clear();
  }
}

int fakecupti_put_kernel(uint32_t device, uint32_t stream, uint32_t correlation, const char* name, uint64_t start,
                         uint64_t end, uint64_t graph_node, int in_flight) {
  const Lock lock(Get().mutex);
  fakecupti::Buffer* buffer = nullptr;
  auto* record = New<cupti::KernelRecord>(cupti::kKindConcurrentKernel, -1, &buffer);
  if (record == nullptr) return 0;
  record->device = device;
  record->context = 1;
  record->stream = stream;
  record->correlation = correlation;
  record->name = name;
  record->graph_node = graph_node;
  if (in_flight != 0) {
    buffer->in_flight.push_back({reinterpret_cast<uint8_t*>(record), correlation, start, end, end});
  } else {
    record->start = start;
    record->end = end;
  }
  return 1;
}

int fakecupti_put_copy(uint32_t device, uint32_t stream, uint32_t correlation, int kind, int from, int to,
                       uint64_t bytes, uint64_t start, uint64_t end, int peer) {
  const Lock lock(Get().mutex);
  auto* record = New<cupti::MemcpyRecord>(peer != 0 ? cupti::kKindMemcpy2 : cupti::kKindMemcpy, -1);
  if (record == nullptr) return 0;
  record->copy_kind = static_cast<uint8_t>(kind);
  record->from = static_cast<uint8_t>(from);
  record->to = static_cast<uint8_t>(to);
  record->bytes = bytes;
  record->start = start;
  record->end = end;
  record->device = device;
  record->stream = stream;
  if (peer != 0) {
    reinterpret_cast<cupti::MemcpyPeerRecord*>(record)->correlation = correlation;
  } else {
    record->correlation = correlation;
  }
  return 1;
}

int fakecupti_put_memset(uint32_t device, uint32_t stream, uint32_t correlation, uint64_t bytes, uint64_t start,
                         uint64_t end) {
  const Lock lock(Get().mutex);
  auto* record = New<cupti::MemsetRecord>(cupti::kKindMemset, -1);
  if (record == nullptr) return 0;
  *record = {cupti::kKindMemset, 0, bytes, start, end, device, 1, stream, correlation};
  return 1;
}

int fakecupti_put_call(int driver, uint32_t cbid, uint32_t tid, uint32_t correlation, uint64_t start, uint64_t end,
                       uint32_t returned, uint32_t process) {
  const Lock lock(Get().mutex);
  const uint32_t kind = driver != 0 ? cupti::kKindDriver : cupti::kKindRuntime;
  auto* record = New<cupti::ApiRecord>(kind, cbid);
  if (record == nullptr) return 0;
  *record = {kind, cbid, start, end, process, tid, correlation, returned};
  return 1;
}

int fakecupti_put_sync(int type, uint32_t correlation, uint64_t start, uint64_t end) {
  const Lock lock(Get().mutex);
  auto* record = New<cupti::SyncRecord>(cupti::kKindSynchronization, -1);
  if (record == nullptr) return 0;
  *record = {cupti::kKindSynchronization, static_cast<uint32_t>(type), start, end, correlation, 1, 7, 0};
  return 1;
}

int fakecupti_put_overhead(uint32_t overhead, uint32_t tid, uint32_t correlation, uint64_t start, uint64_t end) {
  const Lock lock(Get().mutex);
  auto* record = New<cupti::OverheadRecord>(cupti::kKindOverhead, -1);
  if (record == nullptr) return 0;
  *record = {cupti::kKindOverhead, overhead, tid != 0 ? cupti::kObjectThread : 0, 0, tid, 0, start, end, correlation};
  return 1;
}

int fakecupti_put_jit(uint32_t operation, uint32_t correlation, uint64_t start, uint64_t end) {
  const Lock lock(Get().mutex);
  auto* record = New<cupti::JitRecord>(cupti::kKindJit, -1);
  if (record == nullptr) return 0;
  *record = {cupti::kKindJit, 1, operation, 0, start, end, correlation};
  return 1;
}

int fakecupti_put_unknown(uint32_t kind) {
  const Lock lock(Get().mutex);
  return fakecupti::Put(kind, INT64_MIN, nullptr) != nullptr;
}

void fakecupti_finish(uint32_t correlation, uint64_t start, uint64_t end) {
  const Lock lock(Get().mutex);
  const auto finish = [&](fakecupti::Buffer& buffer) {
    auto& flying = buffer.in_flight;
    for (auto record = flying.begin(); record != flying.end();) {
      if (record->correlation != correlation) {
        ++record;
        continue;
      }
      auto* kernel = reinterpret_cast<cupti::KernelRecord*>(record->record);
      kernel->start = start;
      kernel->end = end;
      record = flying.erase(record);
    }
  };
  for (auto& [thread, buffer] : Get().current) finish(buffer);
  for (fakecupti::Buffer& buffer : Get().waiting) finish(buffer);
}

#define FAKE_COUNT(name, value)   \
  int64_t fakecupti_##name() {    \
    const Lock lock(Get().mutex); \
    return value;                 \
  }
FAKE_COUNT(produced, Get().produced)
FAKE_COUNT(delivered, Get().delivered)
FAKE_COUNT(delivered_to_thief, Get().to_thief)
FAKE_COUNT(dropped, Get().dropped)
FAKE_COUNT(null_buffers, Get().null_buffers)
FAKE_COUNT(crashes, Get().crashes)
FAKE_COUNT(dirty_buffers, Get().dirty)
FAKE_COUNT(requests, Get().requests)
FAKE_COUNT(disordered, Get().disordered)

int64_t fakecupti_held() {
  const Lock lock(Get().mutex);
  int64_t held = 0;
  for (const auto& [thread, buffer] : Get().current) held += buffer.records;
  for (const fakecupti::Buffer& buffer : Get().waiting) held += buffer.records;
  return held;
}

int64_t fakecupti_calls(const char* function) {
  const Lock lock(Get().mutex);
  const auto found = Get().calls.find(function);
  return found != Get().calls.end() ? found->second : 0;
}

int fakecupti_kind_enabled(uint32_t kind) {
  const Lock lock(Get().mutex);
  return kind < 64 && Get().kinds[kind];
}

int fakecupti_call_enabled(int driver, uint32_t cbid) {
  const Lock lock(Get().mutex);
  const int domain = driver != 0 ? cupti::kDriverDomain : cupti::kRuntimeDomain;
  return Get().called_back[domain][cbid] ||
         fakecupti::Traced(driver != 0 ? cupti::kKindDriver : cupti::kKindRuntime, cbid);
}

int fakecupti_attribute(uint32_t attribute) {
  const Lock lock(Get().mutex);
  return Get().attributes[attribute];
}

uint32_t fakecupti_thread_id_type() {
  const Lock lock(Get().mutex);
  return Get().thread_id_type;
}

int fakecupti_subscribed() {
  const Lock lock(Get().mutex);
  return Get().subscribed;
}

#pragma GCC visibility pop
