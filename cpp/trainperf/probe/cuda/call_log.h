// CUDA's calls as CUPTI's callbacks tell of them, on the threads that make them: for a fraction of what a record costs.
//
//   CallLog& log = CallLog::Get();
//   log.Open();                                // the collector, at a watch's start: calls of before are not told
//   log.LookAgain();                           // and before callbacks are on: whom it saw within a call may have left
//   log.OnCall(domain, cbid, data);            // in the callback: no lock, no malloc
//   bool all = log.Drain([](const LoggedCall& call) { ... });   // the collector
//
// Times are of CLOCK_MONOTONIC. A driver's call within one of the runtime's is a part of it and left out, but for the
// loading of a module, which is told apart.

#ifndef TRAINPERF_PROBE_CUDA_CALL_LOG_H_
#define TRAINPERF_PROBE_CUDA_CALL_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trainperf/base/mpsc_ring.h"
#include "trainperf/probe/cuda/cupti_abi.h"

namespace trainperf {

struct LoggedCall {
  int64_t start_ns;
  int64_t end_ns;
  uint32_t correlation;
  uint32_t tid;
  uint16_t cbid;
  bool driver;
  bool failed;
};

class CallLog {
 public:
  static constexpr size_t kCalls = size_t{1} << 17;  // 5 MB; a second of more than a loop can launch

  // The process' only log; CUPTI may call back for as long as it likes, so it lives for ever. Throws std::bad_alloc
  // when there is no memory for it.
  static CallLog& Get();

  // The collector's.
  void Open();
  void LookAgain();
  // False: a thread was stopped while it logged a call, and what came after it waits for the next time.
  template <typename Visitor>
  bool Drain(Visitor&& visit) {
    return ring_.Drain(visit);
  }

  // Called on the application's threads.
  void OnCall(int domain, uint32_t cbid, const cupti::CallbackData& data);

  // In a forked child: nothing is logged any more.
  void Die() { dead_.store(true, std::memory_order_relaxed); }

  uint64_t dropped() const { return ring_.dropped(); }

 private:
  CallLog() : ring_(kCalls) {}

  MpscRing<LoggedCall> ring_;
  std::atomic<int64_t> opened_ns_{INT64_MAX};
  std::atomic<uint64_t> look_{1};
  std::atomic<bool> dead_{false};
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CALL_LOG_H_
