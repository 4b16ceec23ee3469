#include "trainperf/probe/denormals.h"

#include <cstdint>
#include <cstring>

namespace trainperf {
namespace {

// `Bits`: those of a number, of which the last kMantissa are its mantissa.
template <typename Bits, int kMantissa>
void CountBlock(const unsigned char* at, size_t elements, FloatCounts* counts) {
  constexpr auto kMantissaBits = static_cast<Bits>((Bits{1} << kMantissa) - 1);
  constexpr auto kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  constexpr auto kInfinity = static_cast<Bits>(kMagnitude - kMantissaBits);
  size_t denormal = 0, not_finite = 0;
  for (size_t i = 0; i < elements; ++i) {
    Bits bits;
    memcpy(&bits, at + i * sizeof(Bits), sizeof(Bits));
    bits &= kMagnitude;
    denormal += static_cast<Bits>(bits - 1) < kMantissaBits ? 1 : 0;  // zero becomes the largest there is
    not_finite += bits >= kInfinity ? 1 : 0;
  }
  counts->looked_at += elements;
  counts->denormal += denormal;
  counts->finite &= not_finite == 0;
}

template <typename Bits, int kMantissa>
FloatCounts Count(const void* memory, size_t elements, size_t blocks) {
  FloatCounts counts;
  const auto* const begin = static_cast<const unsigned char*>(memory);
  if (elements <= blocks * kFloatBlock) {
    CountBlock<Bits, kMantissa>(begin, elements, &counts);
    return counts;
  }
  const size_t last = elements - kFloatBlock;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t first = blocks > 1 ? last / (blocks - 1) * i + last % (blocks - 1) * i / (blocks - 1) : 0;
    CountBlock<Bits, kMantissa>(begin + first * sizeof(Bits), kFloatBlock, &counts);
  }
  return counts;
}

}  // namespace

FloatCounts CountFloats(const void* memory, size_t elements, FloatKind kind, size_t blocks) {
  switch (kind) {
    case FloatKind::kFloat32:
      return Count<uint32_t, 23>(memory, elements, blocks);
    case FloatKind::kFloat64:
      return Count<uint64_t, 52>(memory, elements, blocks);
    case FloatKind::kBfloat16:
      return Count<uint16_t, 7>(memory, elements, blocks);
  }
  return {};
}

}  // namespace trainperf
