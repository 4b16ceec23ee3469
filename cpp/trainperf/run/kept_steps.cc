#include "trainperf/run/kept_steps.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "trainperf/run/words.h"

namespace trainperf {
namespace {

constexpr int kMaxWarmUps = 4;

const std::string& InsertKeptStepSql() {
  static const std::string& sql = *[] {
    auto* text = new std::string("REPLACE INTO kept_step VALUES (?2, ?1");  // `why` comes second in the table
    for (int i = 1; i < kStepColumns; ++i) absl::StrAppend(text, ", ?", i + 2);
    absl::StrAppend(text, ")");
    return text;
  }();
  return sql;
}

}  // namespace

void KeptSteps::Add(const StepRow& row, const StepRecord& step) {
  if ((step.flags & kWarmUp) != 0) {
    if (warm_ups_ < kMaxWarmUps) {
      ++warm_ups_;
      Keep(row, step, kWarmUpReason);
    }
    return;
  }
  if (IsAmongWorst(row.wall_ns)) {
    worst_.emplace(row.wall_ns, row.first_step);
    Keep(row, step, kWorst);
    if (worst_.size() > max_worst_) {
      const int64_t shortest = worst_.begin()->second;
      worst_.erase(worst_.begin());
      LetGo(shortest, kWorst);
    }
  }
  if (IsPickedFlagged(step.flags)) {
    flagged_.emplace_back(flagged_seen_ - 1, row.first_step);
    Keep(row, step, kFlagged);
    if (flagged_.size() > max_flagged_) {
      flagged_stride_ *= 2;
      size_t left = 0;
      for (const auto& [position, index] : flagged_) {
        if (position % flagged_stride_ == 0) {
          flagged_[left++] = {position, index};
        } else {
          LetGo(index, kFlagged);
        }
      }
      flagged_.resize(left);
    }
  }
}

bool KeptSteps::IsAmongWorst(int64_t wall_ns) const {
  return worst_.size() < max_worst_ || (max_worst_ > 0 && wall_ns > worst_.begin()->first);
}

bool KeptSteps::IsPickedFlagged(uint32_t flags) {
  if ((flags & (kDataStarved | kGilContended | kHostStalled | kIncomplete)) == 0 || max_flagged_ == 0) return false;
  return flagged_seen_++ % flagged_stride_ == 0;
}

void KeptSteps::Keep(const StepRow& row, const StepRecord& step, Reason reason) {
  Kept& kept = kept_[row.first_step];
  if (kept.reasons == 0) {
    kept.row = row;
    kept.segments = step.segments;
    has_devices_ |= !step.devices.empty();
    for (const DeviceStep& device : step.devices) kept.devices.emplace_back(device.device, device.segments);
  }
  kept.reasons |= reason;
  kept.unwritten = true;
}

void KeptSteps::LetGo(int64_t index, Reason reason) {
  const auto it = kept_.find(index);
  if (it == kept_.end()) return;
  it->second.reasons &= ~static_cast<unsigned>(reason);
  it->second.unwritten = true;
  if (it->second.reasons != 0) return;
  if (it->second.in_file) to_delete_.push_back(index);
  kept_.erase(it);
}

absl::Status KeptSteps::Write(Database& db) {
  for (const int64_t index : to_delete_) {
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM kept_step WHERE first_step = ?", index));
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM segment WHERE step = ?", index));
    if (has_devices_) TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM device_segment WHERE step = ?", index));
  }
  for (const auto& [index, kept] : kept_) {
    if (!kept.unwritten) continue;
    const char* why = (kept.reasons & kWorst) != 0 ? "worst" : (kept.reasons & kFlagged) != 0 ? "flagged" : "warm_up";
    TRAINPERF_RETURN_IF_ERROR(db.RunWithValues(InsertKeptStepSql().c_str(), kept.row.values(), kStepColumns, why));
    if (!kept.in_file) TRAINPERF_RETURN_IF_ERROR(WriteSegments(db, index, kept));
  }
  return absl::OkStatus();
}

absl::Status KeptSteps::WriteSegments(Database& db, int64_t index, const Kept& kept) const {
  int64_t seq = 0;
  for (const Segment& s : kept.segments) {
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?)", index, seq++, s.start_ns,
                                     s.end_ns, PhaseName(s.phase), MechanismName(s.mechanism), s.thread, s.stack));
  }
  for (const auto& [device, segments] : kept.devices) {
    seq = 0;
    for (const DeviceSegment& s : segments) {
      TRAINPERF_RETURN_IF_ERROR(db.Run(
          "REPLACE INTO device_segment VALUES (?, ?, ?, ?, ?, ?, ?, ?)", index, device, seq++, s.start_ns, s.end_ns,
          WordOf(kDeviceActivityNames, s.what), s.what == DeviceActivity::kIdle ? WordOf(kCauseNames, s.cause) : "",
          names_ != nullptr ? std::string_view(names_->name(s.name)) : std::string_view()));
    }
  }
  return absl::OkStatus();
}

void KeptSteps::NativeIsLaunch() {
  for (auto& [index, kept] : kept_) {
    kept.row.NativeIsLaunch();
    kept.unwritten = true;
  }
}

void KeptSteps::Written() {
  to_delete_.clear();
  for (auto& [index, kept] : kept_) {
    if (!kept.unwritten) continue;
    kept.unwritten = false;
    kept.in_file = true;
  }
}

void KeptSteps::MarkAllUnwritten() {
  to_delete_.clear();
  for (auto& [index, kept] : kept_) {
    kept.unwritten = true;
    kept.in_file = false;
  }
}

}  // namespace trainperf
