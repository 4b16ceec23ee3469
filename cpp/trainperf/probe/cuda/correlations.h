// Makes CUPTI's correlation ids of 32 bits, which wrap after 4 billion calls, unique for the run.

#ifndef TRAINPERF_PROBE_CUDA_CORRELATIONS_H_
#define TRAINPERF_PROBE_CUDA_CORRELATIONS_H_

#include <cstdint>

namespace trainperf {

// Records come nearly in order of their ids: the true one of an id is the nearest to the newest that was seen. 0 stays
// 0.
class Correlations {
 public:
  uint64_t Widen(uint32_t id) {
    if (id == 0) return 0;
    if (newest_ == 0) return newest_ = (uint64_t{1} << 32) + id;  // room for a few that come before
    const auto ahead = static_cast<int32_t>(id - static_cast<uint32_t>(newest_));
    const uint64_t wide = newest_ + static_cast<uint64_t>(static_cast<int64_t>(ahead));
    if (ahead > 0) newest_ = wide;
    return wide;
  }

 private:
  uint64_t newest_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_CORRELATIONS_H_
