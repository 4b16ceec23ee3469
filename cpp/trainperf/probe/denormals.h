// Denormal floats in a part of some memory: blocks that lie evenly over all of it.
//
//   const FloatCounts counts = CountFloats(weights, elements, FloatKind::kFloat32, 128);
//   counts.denormal / counts.looked_at;  // about the share of all
//
// Thread-safe. Who else writes the memory meanwhile may make a count wrong by what it writes.

#ifndef TRAINPERF_PROBE_DENORMALS_H_
#define TRAINPERF_PROBE_DENORMALS_H_

#include <cstddef>

namespace trainperf {

enum class FloatKind { kFloat32, kFloat64, kBfloat16 };

struct FloatCounts {
  size_t looked_at = 0;
  size_t denormal = 0;
  bool finite = true;  // none of them is infinite or NaN
};

constexpr size_t kFloatBlock = 16;  // elements: a vector instruction is slow for any of its lanes

// Of all, where there are no more than `blocks` blocks of them.
FloatCounts CountFloats(const void* memory, size_t elements, FloatKind kind, size_t blocks);

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_DENORMALS_H_
