// The words that the run file uses for enum values. A value out of range, which only a bug could make, gets a word too.

#ifndef TRAINPERF_RUN_WORDS_H_
#define TRAINPERF_RUN_WORDS_H_

#include <array>

#include "trainperf/event/names.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

inline constexpr std::array<const char*, kDetailKindCount> kDetailKindNames = {
    "gil_wait", "sample", "hold", "gc", "call", "idle_gil_wait", "beside", "stop_the_world", "object_lock"};
inline constexpr std::array<const char*, kSpanKindCount> kSpanKindNames = {
    "loader_start", "first_fetch", "validation", "checkpoint", "logging", "compile", "gc", "callback"};

inline constexpr std::array<const char*, kDeviceActivityCount> kDeviceActivityNames = {"kernel", "copy", "memset",
                                                                                       "collective", "idle"};
inline constexpr std::array<const char*, 6> kCopyDirectionNames = {"unknown", "h2d", "d2h", "d2d", "p2p", "h2h"};
inline constexpr std::array<const char*, 5> kMemoryKindNames = {"unknown", "pageable", "pinned", "device", "managed"};

template <size_t n, typename Enum>
const char* WordOf(const std::array<const char*, n>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < n ? names[i] : "unknown";
}

inline const char* PhaseName(Phase phase) { return WordOf(kPhaseNames, phase); }
inline const char* MechanismName(Mechanism mechanism) { return WordOf(kMechanismNames, mechanism); }

}  // namespace trainperf

#endif  // TRAINPERF_RUN_WORDS_H_
