// The scripted libcupti's half that looks like CUPTI.

#include <algorithm>
#include <cstring>
#include <string>

#include "trainperf/testing/fake_cupti_state.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
// Counts the call, and returns what the script says, if it says something.
#define FAKE_SCRIPTED(function)                                    \
  const std::lock_guard<std::recursive_mutex> lock(State().mutex); \
  do {                                                             \
    int scripted = 0;                                              \
    if (fakecupti::Scripted(function, &scripted)) return scripted; \
  } while (false)

namespace cupti = trainperf::cupti;

namespace fakecupti {

bool Scripted(const char* function, int* result) {
  struct State& state = Get();
  ++state.calls[function];
  const auto found = state.results.find(function);
  *result = found != state.results.end() ? found->second : state.all_results;
  return *result != 0;
}

}  // namespace fakecupti

namespace {

struct fakecupti::State& State() {
  return fakecupti::Get();
}

constexpr int kInvalidParameter = 1;

int SubscribeOne(void** subscriber, cupti::Callback callback, void* user) {
  if (State().subscribed || State().other_subscriber) return cupti::kMultipleSubscribers;
  State().subscribed = true;
  State().callback = callback;
  State().callback_user = user;
  *subscriber = &State();
  return 0;
}

}  // namespace

FAKE_EXPORT int cuptiGetVersion(uint32_t* version) {
  const std::lock_guard<std::recursive_mutex> lock(State().mutex);
  *version = State().version;
  return 0;
}

FAKE_EXPORT int cuptiGetTimestamp(uint64_t* timestamp) {
  FAKE_SCRIPTED("cuptiGetTimestamp");
  *timestamp = fakecupti::Now();
  return 0;
}

FAKE_EXPORT int cuptiGetResultString(int result, const char** text) {
  *text = result == cupti::kUnknownError          ? "CUPTI_ERROR_UNKNOWN"
          : result == cupti::kMultipleSubscribers ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                  : "CUPTI_ERROR_SCRIPTED";
  return 0;
}

FAKE_EXPORT int cuptiSubscribe(void** subscriber, cupti::Callback callback, void* user) {
  FAKE_SCRIPTED("cuptiSubscribe");
  return SubscribeOne(subscriber, callback, user);
}

FAKE_EXPORT int cuptiSubscribe_v2(void** subscriber, cupti::Callback callback, void* user,
                                  cupti::SubscriberParams* params) {
  FAKE_SCRIPTED("cuptiSubscribe_v2");
  const int result = SubscribeOne(subscriber, callback, user);
  if (result != 0 && params != nullptr && params->old_name != nullptr) {
    strncpy(params->old_name, State().other_name.c_str(), params->old_name_size);
  }
  return result;
}

FAKE_EXPORT int cuptiUnsubscribe(void* subscriber) {
  FAKE_SCRIPTED("cuptiUnsubscribe");
  if (subscriber != &State() || !State().subscribed) ++State().disordered;
  State().subscribed = false;
  for (auto& calls : State().called_back) calls.reset();
  return 0;
}

FAKE_EXPORT int cuptiEnableCallback(uint32_t enable, void* subscriber, int domain, uint32_t cbid) {
  FAKE_SCRIPTED("cuptiEnableCallback");
  const auto of_domain = State().results.find("cuptiEnableCallback " + std::to_string(domain));
  if (of_domain != State().results.end()) return of_domain->second;
  if (subscriber != &State() || !State().subscribed) {
    ++State().disordered;
    return kInvalidParameter;
  }
  fakecupti::SpinUntilNs(fakecupti::MonotonicNs() + State().callback_cost_ns);
  if (domain < 0 || domain > 2 || cbid >= 1024) return kInvalidParameter;
  State().called_back[domain].set(cbid, enable != 0);
  return 0;
}

FAKE_EXPORT int cuptiActivityRegisterCallbacks(cupti::BufferRequested requested, cupti::BufferCompleted completed) {
  FAKE_SCRIPTED("cuptiActivityRegisterCallbacks");
  if (requested == nullptr || completed == nullptr) return kInvalidParameter;
  State().requested = requested;
  State().completed = completed;
  State().stolen = false;
  return 0;
}

FAKE_EXPORT int cuptiActivityEnable(uint32_t kind) {
  FAKE_SCRIPTED("cuptiActivityEnable");
  if (kind >= State().kinds.size()) return kInvalidParameter;
  if (State().completed == nullptr) ++State().disordered;  // its records would have nowhere to go
  fakecupti::SpinUntilNs(fakecupti::MonotonicNs() + State().kind_cost_ns);
  State().kinds.set(kind);
  if (kind == cupti::kKindRuntime) State().runtime_calls.clear();
  if (kind == cupti::kKindDriver) State().driver_calls.clear();
  return 0;
}

FAKE_EXPORT int cuptiActivityDisable(uint32_t kind) {
  FAKE_SCRIPTED("cuptiActivityDisable");
  if (kind >= State().kinds.size()) return kInvalidParameter;
  fakecupti::SpinUntilNs(fakecupti::MonotonicNs() + State().kind_cost_ns);
  State().kinds.reset(kind);
  if (kind == cupti::kKindConcurrentKernel && State().cut_off) fakecupti::CutOff();
  if (kind == cupti::kKindRuntime) State().runtime_calls.clear();
  if (kind == cupti::kKindDriver) State().driver_calls.clear();
  return 0;
}

FAKE_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable) {
  FAKE_SCRIPTED("cuptiActivityEnableRuntimeApi");
  State().runtime_calls[cbid] = enable != 0;
  return 0;
}

FAKE_EXPORT int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable) {
  FAKE_SCRIPTED("cuptiActivityEnableDriverApi");
  State().driver_calls[cbid] = enable != 0;
  return 0;
}

FAKE_EXPORT int cuptiActivityFlushAll(uint32_t flag) {
  {
    FAKE_SCRIPTED("cuptiActivityFlushAll");
    if (State().completed == nullptr) return 0;
  }
  fakecupti::Flush((flag & 1) != 0);
  return 0;
}

FAKE_EXPORT int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, cupti::Record** record) {
  if (buffer == nullptr || record == nullptr) return kInvalidParameter;
  // Not counted and not locked: it is called for each record, and looks at nothing but the buffer.
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + fakecupti::RecordSize((*record)->kind);
  if (next + sizeof(cupti::Record) > buffer + valid || reinterpret_cast<cupti::Record*>(next)->kind == 0) {
    *record = nullptr;
    return cupti::kMaxLimitReached;
  }
  *record = reinterpret_cast<cupti::Record*>(next);
  return 0;
}

FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  FAKE_SCRIPTED("cuptiActivityGetNumDroppedRecords");
  *dropped = State().unread_dropped;
  State().unread_dropped = 0;
  return 0;
}

FAKE_EXPORT int cuptiActivitySetAttribute(uint32_t attribute, size_t* size, void* value) {
  FAKE_SCRIPTED("cuptiActivitySetAttribute");
  if (size == nullptr || value == nullptr || *size != 1) return kInvalidParameter;
  if (attribute == cupti::kAttributePerThreadBuffers && State().kinds.any()) ++State().disordered;
  State().attributes[attribute] = *static_cast<uint8_t*>(value);
  return 0;
}

FAKE_EXPORT int cuptiSetThreadIdType(uint32_t type) {
  FAKE_SCRIPTED("cuptiSetThreadIdType");
  State().thread_id_type = type;
  return 0;
}

FAKE_EXPORT int cuptiGetThreadIdType(uint32_t* type) {
  FAKE_SCRIPTED("cuptiGetThreadIdType");
  *type = State().thread_id_type;
  return 0;
}

// What torch's monitor of CUPTI asks for beyond that. The clock stays what fakecupti_set_clock made it.
FAKE_EXPORT int cuptiActivityRegisterTimestampCallback(void*) {
  FAKE_SCRIPTED("cuptiActivityRegisterTimestampCallback");
  return 0;
}

FAKE_EXPORT int cuptiActivityEnableHWTrace(uint8_t) {
  FAKE_SCRIPTED("cuptiActivityEnableHWTrace");
  return 0;
}

FAKE_EXPORT int cuptiActivityPushExternalCorrelationId(int, uint64_t) {
  FAKE_SCRIPTED("cuptiActivityPushExternalCorrelationId");
  return 0;
}

FAKE_EXPORT int cuptiActivityPopExternalCorrelationId(int, uint64_t*) {
  FAKE_SCRIPTED("cuptiActivityPopExternalCorrelationId");
  return 0;
}
