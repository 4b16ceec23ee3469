#include "trainperf/collect/cpu_rooms.h"

#include "absl/strings/str_cat.h"

namespace trainperf {

void CpuRooms::Begin(RunWriter* writer) const {
  const int32_t most = MostCpus();
  if (most > 0) writer->SetMeta("cpus_possible", absl::StrCat(most));
}

void CpuRooms::Write(RunWriter* writer) const {
  if (changes_ > 0) writer->SetMeta("cpu_room", absl::StrCat("[", text_, "]"));
}

void CpuRooms::Append(int64_t now_ns, int32_t who, const CpuRoom& room) {
  if (changes_ >= kMostChanges) return;
  absl::StrAppend(&text_, changes_++ > 0 ? ", " : "", "[", now_ns, ", ", who, ", ", room.count, ", \"", room.cpus,
                  "\", ", quota_milli_, "]");
}

}  // namespace trainperf
