#include "trainperf/run/step_rows.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "trainperf/event/names.h"

namespace trainperf {
namespace {

const std::string& InsertStepSql() {
  static const std::string& sql = *[] {
    auto* text = new std::string("REPLACE INTO step VALUES (?");
    for (int i = 1; i < kStepColumns; ++i) absl::StrAppend(text, ", ?");
    absl::StrAppend(text, ")");
    return text;
  }();
  return sql;
}

}  // namespace

StepRow StepRow::Of(const StepRecord& step, bool feeds_device) {
  StepRow row{};
  row.first_step = step.index;
  row.steps = 1;
  row.start_ns = step.start_ns;
  row.wall_ns = row.wall_min_ns = row.wall_max_ns = step.end_ns - step.start_ns;
  row.flags = step.flags;
  row.fetches = step.fetches;
  row.backwards = step.backwards;
  row.optimizer_steps = step.optimizer_steps;
  row.compile_ns = step.compile_ns;
  ForEachPart(step, [&](Phase phase, Mechanism mechanism, int64_t ns) {
    row.cause_ns[static_cast<int>(CauseOf(phase, mechanism, feeds_device))] += ns;
    row.phase_ns[static_cast<int>(phase)] += ns;
  });
  return row;
}

void StepRow::Add(const StepRow& later) {
  steps += later.steps;
  wall_ns += later.wall_ns;
  wall_min_ns = std::min(wall_min_ns, later.wall_min_ns);
  wall_max_ns = std::max(wall_max_ns, later.wall_max_ns);
  flags |= later.flags;
  fetches += later.fetches;
  backwards += later.backwards;
  optimizer_steps += later.optimizer_steps;
  compile_ns += later.compile_ns;
  for (int i = 0; i < kCauseCount; ++i) cause_ns[i] += later.cause_ns[i];
  for (int i = 0; i < kPhaseCount; ++i) phase_ns[i] += later.phase_ns[i];
}

void StepRow::NativeIsLaunch() {
  int64_t& compute_ns = cause_ns[static_cast<int>(Cause::kCompute)];
  cause_ns[static_cast<int>(Cause::kLaunch)] += compute_ns;
  compute_ns = 0;
}

void StepRows::NativeIsLaunch() {
  for (StepRow& row : rows_) row.NativeIsLaunch();
  unwritten_from_ = 0;
}

StepRows::StepRows(int max_rows) : max_rows_(static_cast<size_t>(std::max(max_rows, 2))) {
  rows_.reserve(max_rows_);  // 5 MB of addresses, touched as they fill: growing cost more than all else of a step's row
}

void StepRows::Add(const StepRow& step) {
  if (!rows_.empty() && rows_.back().steps < width_) {
    rows_.back().Add(step);
    unwritten_from_ = std::min(unwritten_from_, rows_.size() - 1);
    return;
  }
  if (rows_.size() == max_rows_) {
    MergeNeighbours();
    Add(step);
    return;
  }
  rows_.push_back(step);
}

void StepRows::MergeNeighbours() {
  size_t merged = 0;
  for (size_t i = 0; i < rows_.size(); i += 2, ++merged) {
    StepRow row = rows_[i];
    if (i + 1 < rows_.size()) row.Add(rows_[i + 1]);
    rows_[merged] = row;
  }
  rows_.resize(merged);
  width_ *= 2;
  unwritten_from_ = 0;
  file_is_stale_ = true;
}

absl::Status StepRows::Write(Database& db) {
  if (file_is_stale_) TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM step"));
  for (size_t i = unwritten_from_; i < rows_.size(); ++i) {
    TRAINPERF_RETURN_IF_ERROR(db.RunWithValues(InsertStepSql().c_str(), rows_[i].values(), kStepColumns));
  }
  return absl::OkStatus();
}

void StepRows::Written() {
  unwritten_from_ = rows_.size();
  file_is_stale_ = false;
}

void StepRows::MarkAllUnwritten() {
  unwritten_from_ = 0;
  file_is_stale_ = true;
}

}  // namespace trainperf
