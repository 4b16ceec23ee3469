#include "trainperf/trace/host_lane.h"

#include <algorithm>

namespace trainperf {
namespace {

// Those whose time someone can save by changing the line that asks for them.
bool WorthAStack(HostCall call) {
  switch (call) {
    case HostCall::kLaunchKernel:
    case HostCall::kLaunchGraph:
    case HostCall::kMemset:
    case HostCall::kCpuOp:
    case HostCall::kPython:
    case HostCall::kQueueFull:
      return false;
    default:
      return true;
  }
}

bool BracketOf(const HostRecord& record, Bracket* bracket) {
  if (record.kind != RecordKind::kAnnotation && record.kind != RecordKind::kPython) return false;
  switch (static_cast<TraceBracket>(record.what)) {
    case TraceBracket::kFetch:
      *bracket = Bracket::kFetch;
      return true;
    case TraceBracket::kOptimizer:
      *bracket = Bracket::kOptimizer;
      return true;
    case TraceBracket::kBackward:
      *bracket = Bracket::kBackward;
      return true;
    case TraceBracket::kCheckpoint:
      *bracket = Bracket::kCheckpoint;
      return true;
    case TraceBracket::kNone:
      break;
  }
  return false;
}

}  // namespace

Event HostLane::Make(EventKind kind, int64_t start_ns, int64_t end_ns) const {
  Event event{};
  event.kind = kind;
  event.thread = thread_;
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  event.flags = kNoCpuTime;
  return event;
}

void HostLane::PutCall(HostCall call, uint64_t correlation, int64_t start_ns, int64_t end_ns) {
  if (correlation == 0 && (call == HostCall::kCpuOp || call == HostCall::kPython) && events_.size() > taken) {
    Event& last = events_.back();
    if (last.kind == EventKind::kCall && last.what == static_cast<uint8_t>(call) && last.end_ns == start_ns) {
      last.end_ns = end_ns;  // operators that follow on one another are one stretch of operators
      return;
    }
  }
  Event event = Make(EventKind::kCall, start_ns, end_ns);
  event.what = static_cast<uint8_t>(call);
  event.value = static_cast<int64_t>(correlation);
  events_.push_back(event);
}

void HostLane::Segment(Open* open, int64_t until_ns) {
  if (until_ns <= open->cursor_ns) return;
  const int64_t from_ns = open->cursor_ns;
  open->cursor_ns = until_ns;
  switch (open->record.kind) {
    case RecordKind::kOp:
    case RecordKind::kBackwardOp:
    case RecordKind::kCall:  // around another one; its last piece is the call
      PutCall(HostCall::kCpuOp, 0, from_ns, until_ns);
      break;
    case RecordKind::kOther:
      if (open->record.end_ns - open->record.start_ns <= kMaxOtherNs) PutCall(HostCall::kCpuOp, 0, from_ns, until_ns);
      break;
    case RecordKind::kPython:
      PutCall(HostCall::kPython, 0, from_ns, until_ns);
      break;
    case RecordKind::kAnnotation:
    case RecordKind::kWaiting:
      break;  // what it did in that time nobody recorded
  }
}

void HostLane::PutStack(const Open& open) {
  names_.clear();
  // The call itself is told apart; around it, an operator's own name is the innermost frame.
  for (size_t i = stack_.size() - 1; i-- > 0;) names_.push_back(stack_[i].record.name);
  const StackId stack = stacks_->Intern(names_);
  if (stack == 0) return;
  Event sample = Make(EventKind::kSample, open.record.start_ns, open.record.end_ns);
  sample.what = static_cast<uint8_t>(SampleState::kUnknown);
  sample.stack = stack;
  events_.push_back(sample);
}

void HostLane::CloseTop() {
  Open& open = stack_.back();
  const HostRecord& record = open.record;
  Bracket bracket{};
  if (record.kind == RecordKind::kCall) {
    const HostCall call = static_cast<HostCall>(record.what);
    PutCall(call, record.correlation, open.cursor_ns, record.end_ns);
    if (stacks_->on() && WorthAStack(call) && record.end_ns - record.start_ns >= kWorthAStackNs) PutStack(open);
  } else {
    Segment(&open, record.end_ns);
    if (BracketOf(record, &bracket)) {
      Event event = Make(EventKind::kEnd, record.end_ns, record.end_ns);
      event.what = static_cast<uint8_t>(bracket);
      if (bracket == Bracket::kCheckpoint) event.value = -1;
      events_.push_back(event);
    }
  }
  backward_ops_ -= record.kind == RecordKind::kBackwardOp;
  const int64_t end_ns = record.end_ns;
  stack_.pop_back();
  if (!stack_.empty()) stack_.back().cursor_ns = std::max(stack_.back().cursor_ns, end_ns);
}

void HostLane::AdvanceTo(int64_t now_ns) {
  while (!stack_.empty() && stack_.back().record.end_ns <= now_ns) CloseTop();
}

void HostLane::Add(const HostRecord& record, uint32_t object) {
  AdvanceTo(record.start_ns);
  if (record.kind == RecordKind::kAnnotation) {
    // record_function's __enter__ is a Python function in which the span begins that outlives it.
    while (!stack_.empty() && stack_.back().record.kind == RecordKind::kPython &&
           stack_.back().record.end_ns < record.end_ns) {
      stack_.back().record.end_ns = record.start_ns;
      CloseTop();
    }
  }
  if (stack_.size() >= kMaxDepth) {
    ++too_deep_;
    return;
  }
  Open open{record, record.start_ns};
  if (!stack_.empty()) {
    Open& around = stack_.back();
    Segment(&around, record.start_ns);
    // Whole microseconds let a span end a little after the one around it.
    open.record.end_ns = std::min(record.end_ns, around.record.end_ns);
  }
  Bracket bracket{};
  if (BracketOf(record, &bracket)) {
    Event event = Make(EventKind::kBegin, record.start_ns, record.start_ns);
    event.what = static_cast<uint8_t>(bracket);
    event.object = object;
    if (bracket == Bracket::kFetch) event.value = -1;
    events_.push_back(event);
  }
  backward_ops_ += record.kind == RecordKind::kBackwardOp;
  stack_.push_back(open);
}

void HostLane::Mark(EventKind kind, Bracket bracket, int64_t at_ns) {
  AdvanceTo(at_ns);
  if (!stack_.empty()) Segment(&stack_.back(), at_ns);
  Event event = Make(kind, at_ns, at_ns);
  event.what = static_cast<uint8_t>(bracket);
  events_.push_back(event);
}

}  // namespace trainperf
