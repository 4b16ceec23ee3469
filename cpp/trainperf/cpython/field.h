// A field of one of CPython's structs, by its offset (offsets.h).

#ifndef TRAINPERF_CPYTHON_FIELD_H_
#define TRAINPERF_CPYTHON_FIELD_H_

#include <cstdint>
#include <cstring>

namespace trainperf {

template <typename T>
T At(const char* base, int32_t offset) {
  T value;
  std::memcpy(&value, base + offset, sizeof(value));
  return value;
}

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_FIELD_H_
