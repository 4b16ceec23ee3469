#include "trainperf/cpython/line_table.h"

namespace trainperf {
namespace {

constexpr int kCodeUnit = 2;

int32_t LineInPairs(const uint8_t* table, size_t size, int32_t line, int64_t offset) {
  constexpr int8_t kNoLine = -128;
  int64_t end = 0;
  for (size_t at = 0; at + 1 < size; at += 2) {
    end += table[at];
    const auto delta = static_cast<int8_t>(table[at + 1]);
    if (delta != kNoLine) line += delta;
    if (offset < end) return delta == kNoLine ? -1 : line;
  }
  return -1;
}

// Six bits a byte, lowest first; bit 6 says that more follow. A torn table may end in the middle.
uint32_t ReadVarint(const uint8_t* table, size_t size, size_t* at) {
  uint32_t value = 0;
  for (int shift = 0; *at < size && shift < 30; shift += 6) {
    const uint8_t byte = table[(*at)++];
    value |= static_cast<uint32_t>(byte & 63) << shift;
    if ((byte & 64) == 0) break;
  }
  return value;
}

int32_t ReadSignedVarint(const uint8_t* table, size_t size, size_t* at) {
  const uint32_t value = ReadVarint(table, size, at);
  const auto magnitude = static_cast<int32_t>(value >> 1);
  return (value & 1) != 0 ? -magnitude : magnitude;
}

int32_t LineInLocations(const uint8_t* table, size_t size, int32_t line, int64_t offset) {
  constexpr int kOneLine0 = 10, kOneLine2 = 12, kNoColumns = 13, kLong = 14, kNone = 15;
  int64_t end = 0;
  for (size_t at = 0; at < size;) {
    const uint8_t head = table[at++];
    const int code = (head >> 3) & 15;
    end += ((head & 7) + 1) * kCodeUnit;
    if (code >= kOneLine0 && code <= kOneLine2) line += code - kOneLine0;
    if (code == kNoColumns || code == kLong) line += ReadSignedVarint(table, size, &at);
    if (offset < end) return code == kNone ? -1 : line;
    while (at < size && (table[at] & 128) == 0) ++at;  // only an entry's first byte has its highest bit set
  }
  return -1;
}

}  // namespace

int32_t LineAt(LineTableFormat format, const uint8_t* table, size_t size, int32_t first_line, int64_t offset) {
  if (offset < 0) return -1;
  return format == LineTableFormat::kPairs ? LineInPairs(table, size, first_line, offset)
                                           : LineInLocations(table, size, first_line, offset);
}

}  // namespace trainperf
