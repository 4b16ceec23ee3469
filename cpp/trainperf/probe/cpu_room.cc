#include "trainperf/probe/cpu_room.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

constexpr int kMostCpus = 8192;  // as CONFIG_NR_CPUS at most
using Mask = std::array<unsigned long, kMostCpus / (8 * sizeof(unsigned long))>;

bool Has(const Mask& mask, int cpu) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  return (mask[static_cast<size_t>(cpu / kBits)] >> (cpu % kBits) & 1) != 0;
}

bool ReadMask(int32_t native_tid, Mask* mask) {
  mask->fill(0);
  return sched_getaffinity(native_tid, sizeof(*mask), reinterpret_cast<cpu_set_t*>(mask->data())) == 0;
}

CpuRoom RoomOf(const Mask& mask) {
  CpuRoom room;
  room.count = 0;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (!Has(mask, cpu)) continue;
    const int first = cpu;
    while (cpu + 1 < kMostCpus && Has(mask, cpu + 1)) ++cpu;
    room.count += cpu - first + 1;
    absl::StrAppend(&room.cpus, room.cpus.empty() ? "" : ",", first, cpu > first ? absl::StrCat("-", cpu) : "");
  }
  return room;
}

}  // namespace

CpuRoom ReadCpuRoom(int32_t native_tid) {
  Mask mask;
  return ReadMask(native_tid, &mask) ? RoomOf(mask) : CpuRoom();
}

int32_t MostCpus() {
  Mask before, all, after;
  if (!ReadMask(0, &before)) return -1;
  all.fill(~0ul);
  if (sched_setaffinity(0, sizeof(all), reinterpret_cast<const cpu_set_t*>(all.data())) != 0) return -1;
  const bool read = ReadMask(0, &after);
  sched_setaffinity(0, sizeof(before), reinterpret_cast<const cpu_set_t*>(before.data()));
  return read ? RoomOf(after).count : -1;
}

}  // namespace trainperf
