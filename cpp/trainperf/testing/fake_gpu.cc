// The scripted libcupti's GPU in small: calls of the calling thread, and streams that work in real time.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

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

bool NestsDriverCalls() {
  const Lock lock(Get().mutex);
  return Get().nested_driver;
}

uint64_t Ticks(int64_t monotonic_ns) { return fakecupti_ticks_at(monotonic_ns); }

// Puts work into a stream: when it starts and ends, as the clock reads then.
void Enqueue(uint32_t stream, int64_t from_ns, int64_t gpu_ns, int64_t* start_ns, int64_t* end_ns) {
  int64_t& free_ns = Get().stream_free_ns[stream];
  *start_ns = std::max(free_ns, from_ns + kQueueNs);
  *end_ns = free_ns = *start_ns + gpu_ns;
}

int64_t ThreadCpuNs() {
  timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

// A call of the calling thread, from here to End(): it calls back, and makes a record, where that is asked for.
class Call {
 public:
  Call(int driver, uint32_t cbid, uint32_t correlation = 0) : driver_(driver), cbid_(cbid), correlation_(correlation) {
    if (correlation == 0) {
      const Lock lock(Get().mutex);
      correlation_ = NextCorrelation();
    }
    start_ns_ = fakecupti::MonotonicNs();
    CallBack(cupti::kEnter, nullptr);
  }

  void End(uint32_t returned = 0) {
    CallBack(cupti::kExit, &returned);
    const Lock lock(Get().mutex);
    fakecupti_put_call(driver_, cbid_, fakecupti::ThreadId(), correlation_, Ticks(start_ns_),
                       Ticks(fakecupti::MonotonicNs()), returned, static_cast<uint32_t>(getpid()));
  }

  uint32_t correlation() const { return correlation_; }
  int64_t start_ns() const { return start_ns_; }

 private:
  // Without the lock: the real one calls threads back beside each other.
  void CallBack(cupti::CallbackSite site, uint32_t* returned) {
    cupti::Callback callback = nullptr;
    void* user = nullptr;
    const int domain = driver_ != 0 ? cupti::kDriverDomain : cupti::kRuntimeDomain;
    {
      const Lock lock(Get().mutex);
      if (!Get().called_back[domain][cbid_]) return;
      callback = Get().callback;
      user = Get().callback_user;
      // What calls back at both ends is told; that which was within another is not.
      if (site == cupti::kExit && data_ != 0) {
        ++Get().produced;
        ++Get().delivered;
      }
    }
    const int64_t from_ns = fakecupti::MonotonicNs();
    const cupti::CallbackData data = {site, "", nullptr, returned, "", nullptr, 1, &data_, correlation_};
    callback(user, domain, cbid_, &data);
    const int64_t cost_ns = Get().call_cost_ns / 2;
    if (cost_ns > 0) fakecupti::SpinUntilNs(from_ns + cost_ns);
  }

  const int driver_;
  const uint32_t cbid_;
  uint32_t correlation_;
  int64_t start_ns_ = 0;
  uint64_t data_ = 0;  // the client's
};

}  // namespace

uint32_t fakecupti_launch(const char* name, uint32_t stream, int64_t gpu_ns) {
  Call call(0, kLaunchKernel);
  std::optional<Call> nested;
  if (NestsDriverCalls()) nested.emplace(1, kDriverLaunchKernel, call.correlation());
  {
    const Lock lock(Get().mutex);
    int64_t from = 0, until = 0;
    const int64_t now_ns = fakecupti::MonotonicNs();
    Enqueue(stream, now_ns, gpu_ns, &from, &until);
    const bool traced = fakecupti_put_kernel(0, stream, call.correlation(), name, Ticks(from), Ticks(until), 0, 1) != 0;
    if (traced) fakecupti::SpinUntilNs(now_ns + Get().kernel_cost_ns);
  }
  if (nested) nested->End();
  call.End();
  return call.correlation();
}

void fakecupti_feed(const char* name, uint32_t stream, int launches, int64_t gpu_ns, int64_t compute_ns) {
  for (int i = 0; i < launches; ++i) {
    const int64_t until_ns = ThreadCpuNs() + compute_ns;
    while (ThreadCpuNs() < until_ns) {
    }
    fakecupti_launch(name, stream, gpu_ns);
  }
}

uint32_t fakecupti_copy(uint64_t bytes, int to_device, int pageable, uint32_t stream, int64_t gpu_ns) {
  Call call(0, kMemcpyAsync);
  int64_t from = 0, until = 0;
  {
    const Lock lock(Get().mutex);
    Enqueue(stream, call.start_ns(), gpu_ns, &from, &until);
    const int memory = pageable != 0 ? 1 : 2;
    fakecupti_put_copy(0, stream, call.correlation(), to_device != 0 ? 1 : 2, to_device != 0 ? memory : 3,
                       to_device != 0 ? 3 : memory, bytes, Ticks(from), Ticks(until), 0);
  }
  if (pageable != 0) fakecupti::SleepUntilNs(until);
  call.End();
  return call.correlation();
}

void fakecupti_synchronize() {
  Call call(0, kStreamSynchronize);
  int64_t until_ns = call.start_ns();
  {
    const Lock lock(Get().mutex);
    for (const auto& [stream, free_ns] : Get().stream_free_ns) until_ns = std::max(until_ns, free_ns);
  }
  fakecupti::SleepUntilNs(until_ns);
  fakecupti_put_sync(cupti::kSyncStream, call.correlation(), Ticks(call.start_ns()), Ticks(fakecupti::MonotonicNs()));
  call.End();
}

void fakecupti_call(int driver, uint32_t cbid, int64_t ns, uint32_t returned) {
  Call call(driver, cbid);
  fakecupti::SleepUntilNs(call.start_ns() + ns);
  call.End(returned);
}

void fakecupti_overhead_call(uint32_t overhead, int64_t ns) {
  Call call(0, kLaunchKernel);
  const int64_t end_ns = fakecupti::SleepUntilNs(call.start_ns() + ns);
  {
    const Lock lock(Get().mutex);
    int64_t from = 0, until = 0;
    fakecupti_put_overhead(overhead, fakecupti::ThreadId(), call.correlation(), Ticks(call.start_ns()), Ticks(end_ns));
    Enqueue(7, end_ns, 1000, &from, &until);
    fakecupti_put_kernel(0, 7, call.correlation(), "loaded_late", Ticks(from), Ticks(until), 0, 1);
  }
  call.End();
}

#pragma GCC visibility pop
