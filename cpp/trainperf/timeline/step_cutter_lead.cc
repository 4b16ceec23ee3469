// Where the first step starts.
#include <algorithm>
#include <utility>

#include "trainperf/timeline/step_cutter.h"

namespace trainperf {
namespace {

// What the first run.step() ended is a step if it took between a quarter of the second and ten times that: less is a
// call at the loop's beginning, more has the program's own beginning in it. What began with the watch, and not with a
// mark of the loop's, may have some of that in any case: then twice is too much.
constexpr int64_t kShortLead = 4;
constexpr int64_t kLongLead = 10;
constexpr int64_t kLongLeadWithWatch = 2;
// What follows the last run.step() of a loop that calls it first is its last step, if it took between a quarter of
// another and twice that: more has what the program does after the loop in it.
constexpr int64_t kShortTail = 4;
constexpr int64_t kLongTail = 2;

}  // namespace

void StepCutter::DropLead() {
  lead_held_ = false;
  writer_->PutOutside(std::move(pieces_[0]));
  pieces_.erase(pieces_.begin());
}

// A warm-up long before the loop is not its beginning: then most of the time since was spent otherwise.
bool StepCutter::MostlyCompiling(size_t index) const {
  int64_t compile_ns = 0;
  for (size_t i = index; i < pieces_.size(); ++i) compile_ns += pieces_[i]->compile_ns;
  return compile_ns >= (now_ns_ - pieces_[index]->start_ns) / 2;
}

void StepCutter::OnCompileBegin() {
  if (started_ || pending_ || validation_open_ || FindLast(Cut::kFetch) != 0) return;
  if (const size_t before = FindLast(Cut::kCompile); before != 0) {
    if (MostlyCompiling(before)) return;
    Merge(before);
  }
  Open(Cut::kCompile);
}

void StepCutter::StartFirstStep() {
  size_t first = FindLast(Cut::kFetch);
  if (first == 0) first = FindLast(Cut::kCompile);
  if (first != 0 && pieces_[first]->cut == Cut::kCompile && !MostlyCompiling(first)) first = 0;
  if (first == 0) {
    while (pieces_.size() > 1) Merge(pieces_.size() - 1);
    Open(Cut::kStart);
    first = 1;
  }
  while (pieces_.size() > first + 1) Merge(pieces_.size() - 1);
  while (first > 1) Merge(--first);
  pieces_[first]->cut = Cut::kStart;
  started_ = true;
  first_step_ns_ = pieces_[first]->start_ns;
  DropLead();
  backwards_ = 0;
  repeats_ = 0;
  exhausted_ = false;
  pieces_[0]->optimizer_steps = static_cast<int32_t>(stepped_.size());  // its closure runs this backward
}

// run.step() without a backward or a step before: what it ended may be the first step, or the program's beginning.
void StepCutter::HoldLead() {
  size_t first = FindLast(Cut::kFetch);
  while (pieces_.size() > first + 1) Merge(pieces_.size() - 1);
  while (first > 1) Merge(--first);
  if (first == 1) {
    lead_fetched_ = true;
    DropLead();
  }
  Open(Cut::kStart);
  started_ = true;
  lead_held_ = true;
  first_step_ns_ = now_ns_;
  backwards_ = 0;
  repeats_ = 0;
  exhausted_ = false;
}

// The second call tells how long a step is, and what there is in one: this had no backward.
bool StepCutter::IsLeadAStep() const {
  const int64_t lead_ns = pieces_[1]->start_ns - pieces_[0]->start_ns;
  const int64_t step_ns = now_ns_ - pieces_[1]->start_ns;
  if (lead_ns < step_ns / kShortLead) return false;
  if (lead_fetched_) return true;
  for (size_t i = 1; i < pieces_.size(); ++i) {
    if (pieces_[i]->fetches > 0 || pieces_[i]->backwards > 0) return false;
  }
  return lead_ns / (lead_with_watch_ ? kLongLeadWithWatch : kLongLead) <= step_ns;
}

void StepCutter::JudgeLead() {
  const int64_t lead_ns = pieces_[1]->start_ns - pieces_[0]->start_ns;
  called_first_ = lead_ns < (now_ns_ - pieces_[1]->start_ns) / kShortLead;
  if (IsLeadAStep()) {
    lead_held_ = false;
    first_step_ns_ = pieces_[0]->start_ns;
  } else {
    DropLead();
  }
}

int64_t StepCutter::LongestTail() const {
  if (!started_) return 0;
  const int64_t steps = writer_->steps_put() - steps_before_ + static_cast<int64_t>(pieces_.size());
  const int64_t mean_ns = (pieces_.back()->end - first_step_ns_) / steps;
  return called_first_ && !backward_seen_ ? kLongTail * std::max(mean_ns, called_step_ns_) : mean_ns;
}

// Where nothing but run.step() tells of steps. The mean may have a slow first step in it: then the one before tells.
bool StepCutter::IsTailAStep() const {
  if (!called_first_ || backward_seen_) return false;
  const int64_t tail_ns = now_ns_ - pieces_.back()->start_ns;
  const int64_t steps = writer_->steps_put() - steps_before_ + static_cast<int64_t>(pieces_.size()) - 1;
  const int64_t mean_ns = steps > 0 ? (pieces_.back()->start_ns - first_step_ns_) / steps : 0;
  return tail_ns >= std::min(mean_ns, called_step_ns_) / kShortTail &&
         tail_ns <= kLongTail * std::max(mean_ns, called_step_ns_);
}

}  // namespace trainperf
