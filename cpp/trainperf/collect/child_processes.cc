#include "trainperf/collect/child_processes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "trainperf/base/clock.h"
#include "trainperf/probe/child_tree.h"

namespace trainperf {
namespace {

constexpr int64_t kPauseRatio = 1000;  // a look that takes 2 ms is not made again before 2 s have passed
constexpr int64_t kTriesRatio = 200;   // likewise of tries to read stacks, of which each process has few
constexpr int kMostStackTries = 8;     // to find a main thread of Python's
constexpr int kMostNameQuestions = 20;
constexpr size_t kLongestName = 200;

}  // namespace

void ChildProcesses::Read(int64_t now_ns, bool last, const std::vector<int32_t>& workers, RunWriter* writer) {
  if (now_ns < due_ns_ && !last) return;
  const int64_t before_ns = ThreadCpuNs();
  std::map<int32_t, ProcessFacts> found;
  for (const int32_t pid : Descendants(kMost + workers.size())) {
    if (std::find(workers.begin(), workers.end(), pid) != workers.end()) continue;
    const ProcessFacts facts = ReadProcess(pid);
    // One that has ended and is not waited for yet still tells what it used.
    if (facts.start_ticks != 0) found.emplace(pid, facts);
  }
  std::vector<std::pair<int32_t, Child>> to_record;
  std::vector<int32_t> gone;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto child = children_.begin(); child != children_.end();) {
      const auto now = found.find(child->first);
      const bool known = now != found.end() && now->second.start_ticks == child->second.start_ticks;
      if (!known || !now->second.alive) gone.push_back(child->first);
      child = known ? std::next(child) : children_.erase(child);
    }
    for (const auto& [pid, facts] : found) See(pid, now_ns, facts);
    for (const auto& [pid, child] : children_) {
      if (child.computed || !child.name.empty()) to_record.emplace_back(pid, child);
    }
  }
  begun_ = true;
  if (stacks_ != nullptr) {
    for (const int32_t pid : gone) stacks_->Remove(pid);
  }
  const bool look = now_ns >= stacks_due_ns_ && !last;
  int64_t stacks_ns = 0;
  for (auto& [pid, child] : to_record) {
    Record(pid, &child, writer);
    const int64_t stack_ns = ThreadCpuNs();
    if (look) LookAtStack(pid, &child, writer);
    stacks_ns += ThreadCpuNs() - stack_ns;
    std::lock_guard<std::mutex> lock(mutex_);
    Child& known = children_[pid];
    known.id = child.id;
    known.command = child.command;
    known.tries = child.tries;
  }
  due_ns_ = now_ns + kPauseRatio * (ThreadCpuNs() - before_ns - stacks_ns);
  if (look) stacks_due_ns_ = now_ns + kTriesRatio * stacks_ns;
}

// Under the lock.
void ChildProcesses::See(int32_t pid, int64_t now_ns, const ProcessFacts& facts) {
  auto known = children_.find(pid);
  if (known == children_.end()) {
    if (children_.size() >= kMost || !facts.alive) return;
    Child child{};
    child.start_ticks = facts.start_ticks;
    // Of one that came since, all that it has used is of the time that was watched.
    child.first_ns = child.last_ns = begun_ ? std::max(now_ns - facts.age_ns, int64_t{0}) : now_ns;
    child.first_cpu_ns = child.last_cpu_ns = begun_ ? 0 : facts.cpu_ns;
    known = children_.emplace(pid, std::move(child)).first;
  }
  Child& child = known->second;
  const auto length_ns = static_cast<double>(now_ns - child.last_ns);
  const auto used_ns = static_cast<double>(facts.cpu_ns - child.last_cpu_ns);
  if (used_ns > 0 && used_ns >= kComputes * length_ns) child.computed = true;
  child.ended = !facts.alive;
  if (facts.alive) child.last_ns = now_ns;
  child.last_cpu_ns = facts.cpu_ns;
}

void ChildProcesses::Record(int32_t pid, Child* child, RunWriter* writer) {
  // Between fork and exec it still is what started it.
  if (!child->ended && (child->command.empty() || child->tries < kMostStackTries)) {
    child->command = ReadProcessCommand(pid);
  }
  // Of multiprocessing's own, which imports and then waits to the end: looks at it would be as many as at one that
  // works.
  if (child->id == 0 && absl::EndsWith(child->command, " multiprocessing.resource_tracker")) return;
  if (child->id == 0) {
    // A program that is started anew in each step leaves room for those that have names.
    if (recorded_ >= (child->name.empty() ? kMostRecorded / 2 : kMostRecorded)) return;
    child->id = ++recorded_;
  }
  writer->SetChild({child->id, pid, child->first_ns, child->last_ns, child->last_cpu_ns - child->first_cpu_ns,
                    child->name, child->command});
}

void ChildProcesses::LookAtStack(int32_t pid, Child* child, RunWriter* writer) {
  if (stacks_ == nullptr || child->ended || child->id == 0 || child->tries >= kMostStackTries) return;
  ++child->tries;
  const absl::Status status = stacks_->Add({0, child->id}, pid);
  if (absl::IsNotFound(status)) return;  // another program; or not yet
  child->tries = kMostStackTries;
  const std::string tier = status.ok() ? "sampled" : "off";
  if (stacks_tier_ == "sampled" || stacks_tier_ == tier) return;  // of one that may be read
  stacks_tier_ = tier;
  writer->SetTier("child_stacks", tier, std::string(status.message()));
}

std::vector<int32_t> ChildProcesses::Unnamed() {
  std::vector<int32_t> pids;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [pid, child] : children_) {
    if (!child.name.empty() || child.asked >= kMostNameQuestions) continue;
    ++child.asked;
    pids.push_back(pid);
  }
  return pids;
}

void ChildProcesses::Name(int32_t pid, const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto child = children_.find(pid);
  if (child != children_.end()) child->second.name = name.substr(0, kLongestName);
}

}  // namespace trainperf
