#include "trainperf/probe/cuda/cuda_tracer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainperf/base/clock.h"
#include "trainperf/base/status_macros.h"
#include "trainperf/probe/cuda/call_log.h"

namespace trainperf {
namespace {

// Between CUPTI's reading of the clock for a record and the record's being in its buffer.
constexpr int64_t kSettleNs = 2'000'000;
constexpr int64_t kSecondReadingNs = 2'000'000;
constexpr int kClockTries = 5;
constexpr int kLogTries = 5;
constexpr int64_t kLostAfterNs = 5'000'000'000;
constexpr int64_t kLookAgainNs = 4'000'000;
constexpr double kBufferSeconds = 0.25;  // a buffer should fill in that time
// What a record, or a call that is logged, costs the thread that makes it. For a launch, which has a kernel and a call,
// some 1.1 us were measured in a loop that launches one small kernel, and 0.4 to 3.9 in trainings of small layers, with
// records of calls 1.1 to 1.5 and 3.4 to 6.5 (docs/gpu.md): this is between them, and what each has of it is assumed.
constexpr int64_t kKernelCostNs = 2500;
constexpr int64_t kCallCostNs = 900;
constexpr int64_t kLoggedCallCostNs = 300;
constexpr int64_t kGraphKernelCostNs = 700;  // of the device's time: the host launches them together
constexpr uint32_t kForced = 1;

void OnRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *max_records = 0;
  BufferPool::Get().Request(buffer, size);
}

void OnCompleted(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) { BufferPool::Get().Complete(buffer, valid); }

void OnCallback(void*, int domain, uint32_t cbid, const cupti::CallbackData* data) {
  if (data != nullptr) CallLog::Get().OnCall(domain, cbid, *data);
}

// The tool that has injected itself, as far as its environment shows; "" when there is no sign of one.
std::string InjectedTool() {
  if (getenv("NSYS_PROFILING_SESSION_ID") != nullptr) return "Nsight Systems";
  for (const char* variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    const char* path = getenv(variable);
    if (path != nullptr && *path != '\0') return absl::StrCat(variable, "=", path);
  }
  return "";
}

bool TorchIsHere() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (torch != nullptr) dlclose(torch);
  return torch != nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaTracer>> CudaTracer::Start(const CudaTracerOptions& options, NameTable* names) {
  TRAINPERF_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Find());
  TRAINPERF_ASSIGN_OR_RETURN(const CuptiApi api, CuptiApi::Load(options.folders, options.path));
  if (!BufferPool::Get().ok()) return absl::ResourceExhaustedError("no memory for CUPTI's buffers");
  try {
    CallLog::Get().Open();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the log of CUDA's calls");
  }
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      BufferPool::Get().Die();
      CallLog::Get().Die();
    });
  });

  std::unique_ptr<CudaTracer> tracer(new CudaTracer(api, driver, names));
  const bool late = !driver.InUse().empty();
  const int64_t before_ns = NowNs();
  TRAINPERF_RETURN_IF_ERROR(tracer->Attach());
  if (late && tracer->why_.empty()) {
    tracer->why_ = absl::StrFormat("attached late, in %.2f s: CUDA was in use before the watch began",
                                   static_cast<double>(NowNs() - before_ns) / 1e9);
  }
  return tracer;
}

CudaTracer::CudaTracer(const CuptiApi& api, const CudaDriver& driver, NameTable* names)
    : api_(api),
      driver_(driver),
      pool_(BufferPool::Get()),
      log_(CallLog::Get()),
      log_dropped_before_(log_.dropped()),
      decoder_(api_, &clock_, names),
      kinds_(&api_) {}

CudaTracer::~CudaTracer() {
  DecodedBatch ignored;
  Stop(&ignored);
}

absl::Status CudaTracer::Subscribe() {
  char holder[cupti::kOldNameSize] = "";
  cupti::Result result;
  const char* call = "cuptiSubscribe";
  if (api_.SubscribeV2 != nullptr && api_.version >= cupti::kVersion13_0) {
    call = "cuptiSubscribe_v2";
    cupti::SubscriberParams params = {sizeof(params), "trainperf", holder, sizeof(holder)};
    result = api_.SubscribeV2(&subscriber_, &OnCallback, nullptr, &params);
    holder[sizeof(holder) - 1] = '\0';
  } else {
    result = api_.Subscribe(&subscriber_, &OnCallback, nullptr);
  }
  if (result == cupti::kSuccess) return absl::OkStatus();
  subscriber_ = nullptr;
  if (result != cupti::kMultipleSubscribers) return absl::UnavailableError(api_.Error(call, result));
  const bool unnamed = absl::StrContains(holder, "<not provided>");
  const std::string who = holder[0] != '\0' && !unnamed ? holder : InjectedTool();
  if (!who.empty()) return absl::UnavailableError(absl::StrCat("another tool has CUPTI: ", who));
  // Kineto subscribes at its first use, without a name, and never lets go. Tracing needs no subscription of its own.
  if (neighbour_was_here_) return absl::OkStatus();  // we saw it come, and it is idle now
  if (unnamed && TorchIsHere()) {
    why_ = "beside a user of CUPTI's that gave no name, as torch.profiler is once it has run";
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "another tool has CUPTI: nsys, ncu, cuda-gdb, or a torch.profiler that ran before the watch");
}

absl::Status CudaTracer::Attach() {
  TRAINPERF_RETURN_IF_ERROR(Subscribe());
  // From here on an error undoes what was done, and nothing else is asked of CUPTI.
  const auto attach = [&]() -> absl::Status {
    uint8_t on = 1, off = 0;
    size_t size = sizeof(on);
    if (api_.ActivitySetAttribute != nullptr) {
      if (api_.can.per_thread_default) api_.ActivitySetAttribute(cupti::kAttributePerThreadBuffers, &size, &off);
      api_.ActivitySetAttribute(cupti::kAttributeZeroedOut, &size, &on);
    }
    if (api_.GetThreadIdType != nullptr) api_.GetThreadIdType(&thread_id_type_before_);
    if (api_.SetThreadIdType == nullptr) return absl::UnimplementedError("CUPTI tells no thread ids of the system");
    cupti::Result result = api_.SetThreadIdType(cupti::kThreadIdSystem);
    if (result != cupti::kSuccess) return absl::UnavailableError(api_.Error("cuptiSetThreadIdType", result));
    pool_.SetMayRefuse(api_.can.refuse_buffers);
    pool_.Prepare();
    result = api_.ActivityRegisterCallbacks(&OnRequested, &OnCompleted);
    if (result != cupti::kSuccess) return absl::UnavailableError(api_.Error("cuptiActivityRegisterCallbacks", result));
    SampleClock();
    if (!clock_.ready()) return absl::UnavailableError("cuptiGetTimestamp tells no time");
    log_.LookAgain();
    const std::lock_guard<std::mutex> lock(switching_);
    const absl::Status applied = kinds_.Apply(tier_, subscriber_);
    switchable_ = applied.ok();
    return applied;
  };
  const absl::Status status = attach();
  if (!status.ok()) {
    Restore();
    return status;
  }
  state_ = State::kRunning;
  drained_ns_ = quiet_since_ns_ = NowNs();
  watermark_ns_ = drained_ns_;
  return absl::OkStatus();
}

void CudaTracer::DisableAll() {
  const std::lock_guard<std::mutex> lock(switching_);
  switchable_ = false;
  kinds_.DisableAll();
}

void CudaTracer::Detach(DecodedBatch* batch) {
  DisableAll();
  SampleClock();
  if (Flush(0)) {
    DecodeCompleted(batch);
    if (pool_.out() > 0) {  // work in flight; its records come without an end, and never again
      Flush(kForced);
      DecodeCompleted(batch);
    }
  }
  for (int i = 0; !log_complete_ && i < kLogTries; ++i) {
    const timespec pause = {0, kLookAgainNs};
    nanosleep(&pause, nullptr);
    DrainLog(batch);
  }
  if (!log_complete_) ++losses_.dropped;  // and what came after it, which cannot be seen
  Restore();
}

// Leaves CUPTI as a program that never met us has it: whoever registers next gets buffers of its own making, which are
// not zeroed. Also after a failure: the library may still serve others.
void CudaTracer::Restore() {
  uint8_t on = 1, off = 0;
  size_t size = sizeof(on);
  if (api_.ActivitySetAttribute != nullptr) {
    api_.ActivitySetAttribute(cupti::kAttributeZeroedOut, &size, &off);
    if (api_.can.per_thread_default) api_.ActivitySetAttribute(cupti::kAttributePerThreadBuffers, &size, &on);
  }
  if (api_.SetThreadIdType != nullptr) api_.SetThreadIdType(thread_id_type_before_);
  if (subscriber_ != nullptr && api_.Unsubscribe != nullptr) api_.Unsubscribe(subscriber_);
  subscriber_ = nullptr;
}

void CudaTracer::Fail(const std::string& why) {
  state_ = State::kFailed;
  why_ = why;
}

// Of a few readings the one between whose ends the least time passed. True when the clock jumped.
bool CudaTracer::SampleClock() {
  const auto read = [this]() {
    int64_t best_ns = INT64_MAX, at_ns = 0;
    uint64_t best = 0;
    for (int i = 0; i < kClockTries; ++i) {
      uint64_t cupti = 0;
      const int64_t before = NowNs();
      if (api_.GetTimestamp(&cupti) != cupti::kSuccess || cupti == 0) continue;
      const int64_t took = NowNs() - before;
      if (took >= best_ns) continue;
      best_ns = took;
      best = cupti;
      at_ns = before + took / 2;
    }
    return best_ns == INT64_MAX ? false : clock_.Sample(at_ns, best);
  };
  const bool first = !clock_.ready();
  const bool jumped = read();
  if (jumped) ++losses_.clock_jumps;
  if (first || jumped) {  // a second reading tells the clock's unit
    timespec pause = {0, kSecondReadingNs};
    nanosleep(&pause, nullptr);
    read();
  }
  return jumped;
}

bool CudaTracer::Flush(uint32_t flag) {
  const cupti::Result result = api_.ActivityFlushAll(flag);
  if (result == cupti::kSuccess) return true;
  Fail(api_.Error("cuptiActivityFlushAll", result));
  return false;
}

void CudaTracer::DrainLog(DecodedBatch* batch) {
  log_complete_ = log_.Drain([&](const LoggedCall& call) { decoder_.AddCall(call, batch); });
}

void CudaTracer::DecodeCompleted(DecodedBatch* batch) {
  DrainLog(batch);  // first: it tells which threads are the application's
  full_.clear();
  pool_.TakeCompleted(&full_);
  for (const BufferPool::Full& full : full_) {
    if (full.discarded) {
      losses_.refused += decoder_.Count(full.buffer, full.valid);
    } else {
      decoder_.Decode(full.buffer, full.valid, batch);
      completed_bytes_ += static_cast<int64_t>(full.valid);
    }
    pool_.GiveBack(full);
  }
  size_t dropped = 0;
  if (api_.ActivityGetNumDroppedRecords != nullptr &&
      api_.ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == cupti::kSuccess) {
    losses_.dropped += static_cast<int64_t>(dropped);
  }
}

bool CudaTracer::Drain(int64_t now_ns, DecodedBatch* batch) {
  if (state_ != State::kRunning) {
    watermark_ns_ = now_ns - kSettleNs;
    return state_ != State::kFailed;
  }
  SampleClock();
  const int64_t flushed_ns = NowNs();
  if (!Flush(0)) {
    DisableAll();
    Restore();
    return false;
  }
  completed_bytes_ = 0;
  DecodeCompleted(batch);
  // A buffer that is still out has a record in flight, and may hold anything since it was handed out.
  const int64_t oldest_ns = pool_.OldestOutNs();
  const int64_t complete_ns = (oldest_ns != 0 ? std::min(oldest_ns, flushed_ns) : flushed_ns) - kSettleNs;
  if (log_complete_) watermark_ns_ = std::max(watermark_ns_, complete_ns);
  LookForLostBuffers(now_ns);

  const double seconds = static_cast<double>(std::max<int64_t>(now_ns - drained_ns_, 1)) / 1e9;
  bytes_per_second_ = 0.8 * bytes_per_second_ + 0.2 * static_cast<double>(completed_bytes_) / seconds;
  pool_.SetSize(static_cast<size_t>(bytes_per_second_ * kBufferSeconds));
  pool_.Prepare();
  drained_ns_ = now_ns;
  return true;
}

void CudaTracer::LookForLostBuffers(int64_t now_ns) {
  const uint64_t seen = pool_.requests() + static_cast<uint64_t>(decoder_.stats().records);
  if (seen != buffers_seen_ || pool_.OldestOutNs() == 0) {
    buffers_seen_ = seen;
    quiet_since_ns_ = now_ns;
    losses_.buffers = 0;
    return;
  }
  if (now_ns - quiet_since_ns_ >= kLostAfterNs) losses_.buffers = pool_.out();
}

void CudaTracer::Pause(DecodedBatch* batch) {
  if (pauses_++ > 0 || state_ != State::kRunning) return;
  Detach(batch);
  if (state_ == State::kRunning) state_ = State::kPaused;
  neighbour_was_here_ = true;
}

void CudaTracer::Resume() {
  if (pauses_ == 0 || --pauses_ > 0 || state_ != State::kPaused) return;
  const absl::Status status = Attach();
  if (!status.ok()) Fail(std::string(status.message()));
}

void CudaTracer::SetTier(CudaTier tier) {
  tier_ = tier;
  if (state_ != State::kRunning) return;
  absl::Status status;
  {
    const std::lock_guard<std::mutex> lock(switching_);
    status = kinds_.Change(tier);
    switchable_ = status.ok() && tier != CudaTier::kOff;
  }
  log_.LookAgain();  // after: who entered a call until then may leave it unseen
  if (!status.ok()) GiveUp(status);
}

bool CudaTracer::TraceWork(bool on, absl::Status* status) {
  const std::unique_lock<std::mutex> lock(switching_, std::try_to_lock);
  if (!lock.owns_lock() || !switchable_) return false;
  *status = kinds_.Change(on ? CudaTier::kFull : CudaTier::kSync);
  switchable_ = status->ok();
  log_.LookAgain();
  return true;
}

void CudaTracer::GiveUp(const absl::Status& status) {
  if (state_ != State::kRunning) return;
  Restore();
  Fail(std::string(status.message()));
}

// A program that ends is not done with its last step before the device is.
void CudaTracer::AwaitLastWork(DecodedBatch* batch) {
  const int64_t until_ns = NowNs() + kLastWorkNs;
  while (Flush(0)) {
    DecodeCompleted(batch);
    if (pool_.begun() == 0 || NowNs() >= until_ns) return;
    const timespec pause = {0, kLookAgainNs};
    nanosleep(&pause, nullptr);
  }
}

void CudaTracer::Stop(DecodedBatch* batch) {
  if (state_ == State::kRunning) {
    SampleClock();
    AwaitLastWork(batch);
    Detach(batch);
  }
  if (state_ != State::kFailed) state_ = State::kStopped;
}

CudaTracer::Losses CudaTracer::losses() const {
  Losses losses = losses_;
  losses.dropped += static_cast<int64_t>(log_.dropped() - log_dropped_before_);
  losses.zero_time = decoder_.stats().zero_time;
  losses.bad = decoder_.stats().bad;
  return losses;
}

int64_t CudaTracer::CostNs() const {
  const DecoderStats& stats = decoder_.stats();
  const int64_t recorded = stats.records - stats.kernels - stats.copies;
  const int64_t launched = stats.kernels - stats.graph_kernels + stats.copies;
  return launched * kKernelCostNs + stats.graph_kernels * kGraphKernelCostNs + recorded * kCallCostNs +
         stats.logged_calls * kLoggedCallCostNs + stats.own_ns;
}

}  // namespace trainperf
