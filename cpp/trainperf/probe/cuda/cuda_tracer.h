// The live tracer of the GPU: what CUPTI tells, as DeviceOps and calls of the host.
//
//   auto tracer = CudaTracer::Start(options, &names);      // an error: the reason why there is no tracing
//   (*tracer)->Drain(NowNs(), &batch);                     // every 100 ms
//   (*tracer)->watermark_ns();                             // nothing older will come
//   (*tracer)->Pause(&batch); (*tracer)->Resume();         // around another user of CUPTI
//   (*tracer)->Stop(&batch);
//
// All on one thread, the collector's, but for TraceWork(). No lock but that of what is switched on is held across
// a call of CUPTI, whose callbacks meet only the lock-free BufferPool and CallLog. In a forked child nothing here may
// be called; CUPTI's callbacks then do nothing.

#ifndef TRAINPERF_PROBE_CUDA_CUDA_TRACER_H_
#define TRAINPERF_PROBE_CUDA_CUDA_TRACER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainperf/base/name_table.h"
#include "trainperf/probe/cuda/activity_kinds.h"
#include "trainperf/probe/cuda/buffer_pool.h"
#include "trainperf/probe/cuda/call_log.h"
#include "trainperf/probe/cuda/cupti_api.h"
#include "trainperf/probe/cuda/cupti_clock.h"
#include "trainperf/probe/cuda/decoder.h"
#include "trainperf/probe/cuda/driver.h"
#include "trainperf/probe/cuda/tier_control.h"

namespace trainperf {

struct CudaTracerOptions {
  std::vector<std::string> folders;  // where wheels keep libcupti
  std::string path;                  // TRAINPERF_CUPTI_PATH
};

class CudaTracer {
 public:
  // Without a driver: NotFound at once, and nothing is loaded. The message is what the tier `cuda` says after "off: ".
  static absl::StatusOr<std::unique_ptr<CudaTracer>> Start(const CudaTracerOptions& options, NameTable* names);
  ~CudaTracer();  // stops

  // Flushes, and decodes what came. False: CUPTI failed and was given up; why() says how.
  bool Drain(int64_t now_ns, DecodedBatch* batch);
  // Every operation and call that ended by then has been delivered, or is lost and counted.
  int64_t watermark_ns() const { return watermark_ns_; }

  // Lets go of CUPTI for another user of it in this process, and takes it again. What was in flight is lost.
  void Pause(DecodedBatch* batch);
  void Resume();
  bool paused() const { return state_ == State::kPaused; }

  void SetTier(CudaTier tier);
  // On any thread, for as long as it runs: between CudaTier::kFull (on) and kSync, within the tier as it is. False:
  // nothing was done, as CUPTI is being let go of just now. A bad status: CUPTI has been switched off, and GiveUp() is
  // to follow on the collector's thread.
  bool TraceWork(bool on, absl::Status* status);
  void GiveUp(const absl::Status& status);
  // Waits up to kLastWorkNs for what is in flight. Idempotent.
  void Stop(DecodedBatch* batch);
  static constexpr int64_t kLastWorkNs = 200'000'000;

  bool running() const { return state_ == State::kRunning; }
  CudaTier tier() const { return running() || paused() ? tier_ : CudaTier::kOff; }
  const std::string& why() const { return why_; }
  std::string Version() const { return api_.VersionName(); }
  const std::string& file() const { return api_.file; }
  const CudaDriver& driver() const { return driver_; }

  struct Losses {
    int64_t refused = 0;    // records in buffers of the reserve, which are not used
    int64_t dropped = 0;    // CUPTI's own count, and calls that found our log of them full
    int64_t zero_time = 0;  // CUPTI's device buffer ran out, or a forced flush cut them off
    int64_t bad = 0;
    int64_t clock_jumps = 0;
    int64_t buffers = 0;  // that have not come back: another tool took CUPTI's callbacks
    int64_t total() const { return refused + dropped + zero_time + bad + clock_jumps + buffers; }
  };
  Losses losses() const;
  const DecoderStats& decoded() const { return decoder_.stats(); }
  // What it costs the application's threads: records and callbacks x what one costs, and what CUPTI itself counts.
  int64_t CostNs() const;

 private:
  enum class State { kRunning, kPaused, kFailed, kStopped };

  CudaTracer(const CuptiApi& api, const CudaDriver& driver, NameTable* names);

  absl::Status Subscribe();
  absl::Status Attach();
  void AwaitLastWork(DecodedBatch* batch);
  void DisableAll();
  void Detach(DecodedBatch* batch);
  void Restore();
  void Fail(const std::string& why);
  bool SampleClock();
  bool Flush(uint32_t flag);
  void DrainLog(DecodedBatch* batch);
  void DecodeCompleted(DecodedBatch* batch);
  void LookForLostBuffers(int64_t now_ns);

  const CuptiApi api_;
  const CudaDriver driver_;
  BufferPool& pool_;
  CallLog& log_;
  const uint64_t log_dropped_before_;
  bool log_complete_ = true;
  CuptiClock clock_;
  Decoder decoder_;
  std::mutex switching_;
  bool switchable_ = false;  // by TraceWork(): guarded by switching_, as kinds_ is
  ActivityKinds kinds_;
  CudaTier tier_ = CudaTier::kFull;
  State state_ = State::kStopped;
  int pauses_ = 0;
  bool neighbour_was_here_ = false;
  std::string why_;
  void* subscriber_ = nullptr;
  uint32_t thread_id_type_before_ = cupti::kThreadIdDefault;
  int64_t watermark_ns_ = 0;
  int64_t drained_ns_ = 0;
  double bytes_per_second_ = 0;
  int64_t completed_bytes_ = 0;
  uint64_t buffers_seen_ = 0;
  int64_t quiet_since_ns_ = 0;
  Losses losses_;
  std::vector<BufferPool::Full> full_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CUDA_TRACER_H_
