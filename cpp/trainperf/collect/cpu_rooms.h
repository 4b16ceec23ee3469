// Keeps when the CPUs that the step thread and the loaders' workers may run on changed, and the container's quota.
//
//   CpuRooms rooms;
//   rooms.Begin(&writer);                           // on our thread
//   rooms.Read(now_ns, 0, native_tid);              // at each wake-up: who 0 is the step thread, else a worker's pid
//   rooms.SetQuota(now_ns, host.ReadQuotaMilli());  // each second
//   rooms.Write(&writer);                           // meta `cpu_room`: [[at_ns, who, count, "0-3", quota_milli], ...]
//
// Used by one thread.

#ifndef TRAINPERF_COLLECT_CPU_ROOMS_H_
#define TRAINPERF_COLLECT_CPU_ROOMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "trainperf/probe/cpu_room.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

class CpuRooms {
 public:
  static constexpr size_t kMostChanges = 512;  // later ones are left out: workers come with each epoch

  void Begin(RunWriter* writer) const;

  void Read(int64_t now_ns, int32_t who, int32_t native_tid) { Add(now_ns, who, ReadCpuRoom(native_tid)); }

  void Add(int64_t now_ns, int32_t who, const CpuRoom& room) {
    if (room.count <= 0) return;
    const auto last = last_.find(who);
    if (last != last_.end() && last->second == room) return;
    last_[who] = room;
    Append(now_ns, who, room);
  }

  // Thousandths of a CPU; -1: none.
  void SetQuota(int64_t now_ns, int64_t quota_milli) {
    if (quota_milli == quota_milli_) return;
    quota_milli_ = quota_milli;
    const auto last = last_.find(0);
    if (last != last_.end()) Append(now_ns, 0, last->second);
  }

  void Write(RunWriter* writer) const;

 private:
  void Append(int64_t now_ns, int32_t who, const CpuRoom& room);

  std::map<int32_t, CpuRoom> last_;
  int64_t quota_milli_ = -1;
  std::string text_;
  size_t changes_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_CPU_ROOMS_H_
