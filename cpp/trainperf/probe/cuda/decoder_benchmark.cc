// What tracing a GPU costs our own thread: records decoded and folded per second, and a core's share at 50,000 launches
// a second. And what a request for a buffer costs the application's.

#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/buffer_pool.h"
#include "trainperf/probe/cuda/call_folder.h"
#include "trainperf/probe/cuda/call_log.h"
#include "trainperf/probe/cuda/decoder.h"
#include "trainperf/testing/fake_cupti.h"

namespace trainperf {
namespace {

constexpr int kLaunches = 3900;  // a buffer of 1 MB
std::vector<uint8_t> g_buffer;
size_t g_valid = 0;

void Requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = g_buffer.data();
  *size = g_buffer.size();
  *max_records = 0;
}
void Completed(void*, uint32_t, uint8_t*, size_t, size_t valid) { g_valid = valid; }

template <typename Function>
Function* Control(const char* name) {
  static void* const handle = dlopen(TRAINPERF_FAKE_CUPTI, RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

// A buffer of kernels and the calls that launched them, of a hundred kernels as torch names them.
CuptiApi FillBuffer() {
  const CuptiApi api = *CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI);
  g_buffer.assign(BufferPool::kBufferSize, 0);
  api.ActivityRegisterCallbacks(&Requested, &Completed);
  api.ActivityEnable(cupti::kKindConcurrentKernel);
  api.ActivityEnable(cupti::kKindRuntime);
  static std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEvi_" +
                    std::to_string(i));
  }
  const auto put_kernel = Control<decltype(fakecupti_put_kernel)>("fakecupti_put_kernel");
  const auto put_call = Control<decltype(fakecupti_put_call)>("fakecupti_put_call");
  const auto pid = static_cast<uint32_t>(getpid());
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  for (uint32_t i = 0; i < kLaunches; ++i) {
    const uint64_t at = 1'000'000'000 + i * 20'000;
    put_kernel(0, 7, i + 1, names[i % names.size()].c_str(), at + 8000, at + 18'000, 0, 0);
    put_call(0, 211, tid, i + 1, at, at + 4000, 0, pid);
  }
  api.ActivityFlushAll(0);
  return api;
}

void BM_Decode(benchmark::State& state) {
  const CuptiApi api = FillBuffer();
  CuptiClock clock;
  clock.Sample(1'000'000'000, 1'000'000'000);
  NameTable names(1000);
  Decoder decoder(api, &clock, &names);
  DecodedBatch batch;
  for (auto _ : state) {
    batch.ops.clear();
    batch.calls.clear();
    decoder.Decode(g_buffer.data(), g_valid, &batch);
    benchmark::DoNotOptimize(batch.ops.data());
  }
  if (batch.ops.size() != kLaunches || batch.calls.size() != kLaunches) state.SkipWithError("records were lost");
  const double launches = static_cast<double>(state.iterations()) * kLaunches;
  state.counters["records"] = benchmark::Counter(2 * launches, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Decode);

// All that our thread does for a launch whose call has a record: decode, fold, sort, and zero the buffer. One that is
// logged takes less.
void BM_DecodeAndFold(benchmark::State& state) {
  const CuptiApi api = FillBuffer();
  CuptiClock clock;
  clock.Sample(1'000'000'000, 1'000'000'000);
  NameTable names(1000);
  Decoder decoder(api, &clock, &names);
  CallFolder folder;
  DecodedBatch batch;
  std::vector<Event> events;
  std::vector<uint8_t> zeroed(g_buffer.size());
  for (auto _ : state) {
    batch.ops.clear();
    batch.calls.clear();
    events.clear();
    decoder.Decode(g_buffer.data(), g_valid, &batch);
    for (const CudaCallRecord& call : batch.calls) folder.Add(call);
    folder.TakeUpTo(INT64_MAX, &events);
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.end_ns < b.end_ns; });
    std::stable_sort(batch.ops.begin(), batch.ops.end(),
                     [](const DeviceOp& a, const DeviceOp& b) { return a.end_ns < b.end_ns; });
    std::fill(zeroed.begin(), zeroed.begin() + static_cast<std::ptrdiff_t>(g_valid), uint8_t{0});
    benchmark::DoNotOptimize(zeroed.data());
  }
  const double launches = static_cast<double>(state.iterations()) * kLaunches;
  state.counters["launches"] = benchmark::Counter(launches, benchmark::Counter::kIsRate);
  // Seconds of a core for one second of 50,000 launches.
  state.counters["core_share"] =
      benchmark::Counter(launches / 50'000, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_DecodeAndFold);

void BM_BufferRequest(benchmark::State& state) {
  BufferPool pool;
  std::vector<BufferPool::Full> full;
  uint8_t* buffer = nullptr;
  size_t size = 0;
  int out = 0;
  for (auto _ : state) {
    pool.Request(&buffer, &size);
    pool.Complete(buffer, 0);
    if (++out < 16) continue;
    state.PauseTiming();  // the collector's part
    full.clear();
    pool.TakeCompleted(&full);
    for (const auto& one : full) pool.GiveBack(one);
    out = 0;
    state.ResumeTiming();
  }
  if (pool.refused() != 0) state.SkipWithError("buffers were refused");
}
BENCHMARK(BM_BufferRequest)->Iterations(20'000);

// What a launch takes on the application's thread: both ends of the runtime's call, and of the driver's within it.
void BM_LogCall(benchmark::State& state) {
  CallLog& log = CallLog::Get();
  log.Open();
  uint64_t outer = 0, inner = 0;
  int returned = 0, logged = 0;
  cupti::CallbackData runtime = {cupti::kEnter, "", nullptr, &returned, "", nullptr, 1, &outer, 1};
  cupti::CallbackData driver = {cupti::kEnter, "", nullptr, &returned, "", nullptr, 1, &inner, 1};
  for (auto _ : state) {
    runtime.site = driver.site = cupti::kEnter;
    log.OnCall(cupti::kRuntimeDomain, 211, runtime);
    log.OnCall(cupti::kDriverDomain, 307, driver);
    runtime.site = driver.site = cupti::kExit;
    log.OnCall(cupti::kDriverDomain, 307, driver);
    log.OnCall(cupti::kRuntimeDomain, 211, runtime);
    if (++logged < 10'000) continue;
    state.PauseTiming();  // the collector's part
    log.Drain([](const LoggedCall&) {});
    logged = 0;
    state.ResumeTiming();
  }
  if (log.dropped() != 0) state.SkipWithError("calls were dropped");
}
BENCHMARK(BM_LogCall);

}  // namespace
}  // namespace trainperf
