// Turns CUPTI's activity records into what the timeline reads: DeviceOps, and the calls of the host.
//
//   Decoder decoder(api, &clock, &names);
//   decoder.Decode(buffer, valid, &batch);
//
// Walks a buffer only with the loaded library's own cuptiActivityGetNextRecord, since records grow from version to
// version. Nothing in a record is trusted: unknown kinds, times of 0 and ends before starts are counted and left out.

#ifndef TRAINPERF_PROBE_CUDA_DECODER_H_
#define TRAINPERF_PROBE_CUDA_DECODER_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "trainperf/base/name_table.h"
#include "trainperf/event/device_op.h"
#include "trainperf/probe/cuda/call_folder.h"
#include "trainperf/probe/cuda/call_log.h"
#include "trainperf/probe/cuda/correlations.h"
#include "trainperf/probe/cuda/cupti_api.h"
#include "trainperf/probe/cuda/cupti_clock.h"

namespace trainperf {

struct DecodedBatch {
  std::vector<DeviceOp> ops;
  std::vector<CudaCallRecord> calls;
  // Of operations without times; 0: it is not known of which.
  std::vector<uint64_t> cut_off;
};

struct DecoderStats {
  int64_t records = 0;        // of any kind
  int64_t kernels = 0;        // delivered
  int64_t graph_kernels = 0;  // of these
  int64_t copies = 0;         // and memsets
  int64_t calls = 0;          // delivered
  int64_t logged_calls = 0;   // of these, that a callback told of: no record
  int64_t other = 0;          // kinds and calls of no account
  int64_t zero_time = 0;      // device operations without times: CUPTI's device buffer ran out, or a forced flush
  int64_t bad = 0;            // that end before they start, or are of another process
  int64_t own_ns = 0;         // what CUPTI says that it cost the application's threads
};

// Not thread-safe: the collector's.
class Decoder {
 public:
  Decoder(const CuptiApi& api, const CuptiClock* clock, NameTable* names)
      : next_record_(api.ActivityGetNextRecord), clock_(clock), names_(names), pid_(static_cast<uint32_t>(getpid())) {}

  void Decode(uint8_t* buffer, size_t valid, DecodedBatch* batch);
  void AddCall(const LoggedCall& call, DecodedBatch* batch);
  // How many records a buffer holds that is not decoded.
  int64_t Count(uint8_t* buffer, size_t valid);

  const DecoderStats& stats() const { return stats_; }

 private:
  void Kernel(const cupti::KernelRecord& record, DecodedBatch* batch);
  void Copy(const cupti::MemcpyRecord& record, uint32_t correlation, DecodedBatch* batch);
  void Memset(const cupti::MemsetRecord& record, DecodedBatch* batch);
  void Api(const cupti::ApiRecord& record, DecodedBatch* batch);
  void Sync(const cupti::SyncRecord& record, DecodedBatch* batch);
  void Overhead(const cupti::OverheadRecord& record, DecodedBatch* batch);
  void Jit(const cupti::JitRecord& record, DecodedBatch* batch);
  // False (and counted) when there is nothing to go by.
  bool Times(uint64_t start, uint64_t end, int64_t* start_ns, int64_t* end_ns);
  bool OpTimes(uint64_t start, uint64_t end, uint32_t correlation, DeviceOp* op, DecodedBatch* batch);
  uint32_t NameOf(const char* name);
  void NoteCaller(uint32_t thread);

  struct KnownName {
    uint32_t id;
    std::string raw;  // what stood at that address: a module that went may leave it to another's name
  };

  cupti::Result (*next_record_)(uint8_t*, size_t, cupti::Record**);
  const CuptiClock* clock_;
  NameTable* names_;
  const uint32_t pid_;
  Correlations correlations_;
  DecoderStats stats_;
  absl::flat_hash_map<const char*, KnownName> known_names_;
  absl::flat_hash_set<uint32_t> callers_;  // threads of the application's
  uint32_t last_caller_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_DECODER_H_
