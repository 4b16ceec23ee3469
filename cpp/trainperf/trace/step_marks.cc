#include "trainperf/trace/step_marks.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

constexpr char kCallStep[] = "call prof.step() in the loop";

// The thread with the most of what `rank` tells.
template <typename Rank>
uint16_t Busiest(const Trace& trace, Rank&& rank) {
  uint16_t best = 0;
  for (size_t i = 1; i < trace.threads.size(); ++i) {
    if (best == 0 || rank(trace.threads[best]) < rank(trace.threads[i])) best = static_cast<uint16_t>(i);
  }
  return best;
}

// False: the plan's thread has no mark.
bool CutAtMarks(const Trace& trace, StepPlan* plan) {
  std::vector<StepMark> marks;
  for (const StepMark& mark : trace.steps) {
    if (mark.thread == plan->thread) marks.push_back(mark);
  }
  if (marks.empty()) return false;
  std::sort(marks.begin(), marks.end(), [](const StepMark& a, const StepMark& b) {
    return std::make_tuple(a.start_ns, -a.end_ns) < std::make_tuple(b.start_ns, -b.end_ns);
  });
  // Some traces tell each step twice: as an operator and as an annotation.
  const auto twin = [](const StepMark& a, const StepMark& b) {
    return a.number == b.number && b.start_ns < std::max(a.end_ns, a.start_ns + 1);
  };
  marks.erase(std::unique(marks.begin(), marks.end(), twin), marks.end());
  plan->first_index = marks.front().number;
  int64_t end_ns = 0;
  bool in_order = true;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (i > 0 && marks[i].start_ns <= plan->cuts.back()) continue;
    in_order &= marks[i].number == plan->first_index + static_cast<int64_t>(plan->cuts.size());
    plan->cuts.push_back(marks[i].start_ns);
  }
  for (const StepMark& mark : marks) end_ns = std::max(end_ns, mark.end_ns);
  plan->cuts.push_back(std::max(end_ns, plan->cuts.back() + 1));
  if (!in_order) plan->note = "the trace's steps are not numbered one by one: they are counted on from its first";
  return true;
}

}  // namespace

StepPlan PlanSteps(const Trace& trace) {
  StepPlan plan;
  if (!trace.steps.empty()) {
    plan.thread = Busiest(trace, [](const ThreadCounts& t) { return std::make_tuple(t.steps, t.ops); });
    if (CutAtMarks(trace, &plan)) return plan;
  }
  plan.thread = Busiest(trace, [](const ThreadCounts& t) {
    return std::make_tuple(t.python_backward, t.fetches + t.optimizers, t.ops, t.backward_ops);
  });
  bool backward = false;
  for (const ThreadCounts& thread : trace.threads) backward |= thread.backward_ops > 0 || thread.python_backward;
  const ThreadCounts counts = plan.thread != 0 ? trace.threads[plan.thread] : ThreadCounts();
  constexpr char kNone[] = "the trace has no ProfilerStep marks: ";
  if (counts.fetches > 0 && backward) {
    plan.note = absl::StrCat(kNone, "its steps were found by its DataLoader; ", kCallStep);
  } else if (counts.fetches > 1) {
    plan.cut_at_fetches = true;
    plan.note = absl::StrCat(kNone, "each fetch from its DataLoader begins a step; ", kCallStep);
  } else if (counts.optimizers > 0 && backward) {
    plan.note = absl::StrCat(kNone, "its steps were found by its optimizer; ", kCallStep);
  } else if (counts.optimizers > 1) {
    plan.cut_at_optimizer = true;
    plan.cuts = {trace.first_ns};
    plan.note = absl::StrCat(kNone, "each step of its optimizer ends a step; ", kCallStep);
  } else {
    plan.cuts = {trace.first_ns, std::max(trace.last_ns, trace.first_ns + 1)};
    plan.note = absl::StrCat(kNone, "all of it counts as one step; ", kCallStep);
  }
  return plan;
}

}  // namespace trainperf
