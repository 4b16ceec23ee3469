// Makes of the records of CUDA's calls one sequence of kCall events per thread that do not overlap.
//
//   CallFolder folder;
//   folder.Add({start, end, correlation, tid, call, ...});     // in any order
//   folder.TakeUpTo(watermark_ns, &events);
//
// The driver's calls within one of the runtime's are folded into it. What a call spends on loading a module, on
// compiling or on waiting for room in the launch queue becomes a kCall of its own, and the call is what comes after it:
// so the host's time is told by cause, and a launch that had to load its kernel begins when it could be launched.

#ifndef TRAINPERF_PROBE_CUDA_CALL_FOLDER_H_
#define TRAINPERF_PROBE_CUDA_CALL_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/base/ids.h"
#include "trainperf/event/event.h"

namespace trainperf {

struct CudaCallRecord {
  int64_t start_ns;
  int64_t end_ns;
  uint64_t correlation;
  uint32_t tid;  // 0: not known, then that of the call with the same correlation
  HostCall call;
  bool failed;
  bool inner;  // part of a call (an overhead, a compilation): has its call's correlation, or none
};

// Not thread-safe.
class CallFolder {
 public:
  // A stretch of a call before what splits it that is too short to be told.
  static constexpr int64_t kPrefixNs = 10'000;
  static constexpr size_t kMaxPending = size_t{1} << 18;
  // Of more threads than that, those that have been silent for so long are forgotten.
  static constexpr size_t kManyThreads = 4096;
  static constexpr int64_t kForgetNs = 10'000'000'000;

  void Add(const CudaCallRecord& call);
  // Appends the kCall events that end by then, in no order between threads. Called with rising times.
  void TakeUpTo(int64_t watermark_ns, std::vector<Event>* events);

  size_t pending() const { return pending_.size(); }
  size_t threads() const { return told_until_ns_.size(); }
  int64_t folded() const { return folded_; }
  int64_t without_thread() const { return without_thread_; }  // nobody's, so nothing can be said of it

 private:
  void PutPartsWithinTheirCalls();
  void FoldThread(const CudaCallRecord* begin, const CudaCallRecord* end, std::vector<Event>* events);
  void Emit(const CudaCallRecord& call, int64_t start_ns, int64_t end_ns, uint64_t correlation, ThreadId thread,
            std::vector<Event>* events);

  std::vector<CudaCallRecord> pending_;
  std::vector<CudaCallRecord> ready_;
  absl::flat_hash_map<uint32_t, int64_t> told_until_ns_;  // by tid
  int64_t folded_ = 0;
  int64_t without_thread_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CALL_FOLDER_H_
