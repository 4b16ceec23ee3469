#include "trainperf/run/children.h"

#include <string_view>

#include "trainperf/run/words.h"

namespace trainperf {

void Children::Set(const ChildReading& child) { children_[child.id] = {child, true}; }

void Children::Add(const WorkerSample& sample) {
  std::tuple key(sample.of.child, sample.stack, sample.state, sample.call);
  if (stacks_.size() >= kMaxStacks && stacks_.count(key) == 0) {
    key = {sample.of.child, 0, sample.state, sample.state == SampleState::kBlocked ? -1 : 0};
    if (stacks_.size() >= 2 * kMaxStacks && stacks_.count(key) == 0) return;
  }
  Kept<int64_t>& samples = stacks_[key];
  ++samples.value;
  samples.unwritten = true;
}

absl::Status Children::Write(Database& db) {
  for (const auto& [id, kept] : children_) {
    if (!kept.unwritten) continue;
    const ChildReading& child = kept.value;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO child VALUES (?, ?, ?, ?, ?, ?, ?)", id, child.pid, child.first_ns,
                                     child.last_ns, child.cpu_ns, child.name, child.command));
  }
  for (const auto& [key, kept] : stacks_) {
    if (!kept.unwritten) continue;
    const auto& [child, stack, state, call] = key;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO child_stack VALUES (?, ?, ?, ?, ?)", child, stack,
                                     std::string_view(WordOf(kSampleStateNames, state)), call, kept.value));
  }
  return absl::OkStatus();
}

void Children::Written() {
  for (auto& [id, kept] : children_) kept.unwritten = false;
  for (auto& [key, kept] : stacks_) kept.unwritten = false;
}

void Children::MarkAllUnwritten() {
  for (auto& [id, kept] : children_) kept.unwritten = true;
  for (auto& [key, kept] : stacks_) kept.unwritten = true;
}

}  // namespace trainperf
