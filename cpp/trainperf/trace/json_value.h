// What one value in a JSON text says, given as the bytes that stand there: "12", "1712195495527376.234", "\"name\"".

#ifndef TRAINPERF_TRACE_JSON_VALUE_H_
#define TRAINPERF_TRACE_JSON_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace trainperf {

// Times beyond it are no times: no sum of a few of them overflows.
inline constexpr int64_t kMaxTraceNs = int64_t{1} << 61;

// Without the quotes around it, if there are any.
std::string_view Unquoted(std::string_view token);

// Of a number, quoted or not. False when it is none, or does not fit.
bool ParseUnsigned(std::string_view token, uint64_t* value);

// Microseconds in decimal to nanoseconds, by their digits: a double would lose the last ones. False when it is no
// number, negative or beyond kMaxTraceNs.
bool ParseMicros(std::string_view token, int64_t* ns);

// Replaces what stands between quotes by what it means.
void Unescape(std::string_view text, std::string* to);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_JSON_VALUE_H_
