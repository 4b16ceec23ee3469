// Source lines of instructions, from a copy of a code object's co_linetable.

#ifndef TRAINPERF_CPYTHON_LINE_TABLE_H_
#define TRAINPERF_CPYTHON_LINE_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace trainperf {

enum class LineTableFormat {
  kPairs,      // 3.10: (bytes of code, line difference) pairs, PEP 626
  kLocations,  // 3.11 to 3.14: Objects/locations.md
};

// The line of the instruction at byte `offset` of the bytecode; -1 when it has none, or the table does not reach it.
int32_t LineAt(LineTableFormat format, const uint8_t* table, size_t size, int32_t first_line, int64_t offset);

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_LINE_TABLE_H_
