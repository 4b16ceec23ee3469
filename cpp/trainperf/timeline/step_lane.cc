#include "trainperf/timeline/step_lane.h"

#include <algorithm>
#include <limits>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr int64_t kWorthASpanNs = 1'000'000;      // a collection, a log record, a callback
constexpr int64_t kMaxSampleNs = 10'000'000'000;  // a sample stands for one sampling gap, never for longer
constexpr size_t kMaxNoGradLoaders = 16;
constexpr size_t kMaxStretchSamples = 1024;

int32_t Narrow(int64_t value) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

// Brackets that decide what the time before them was. The others only interrupt it.
bool Delimits(Bracket bracket) {
  return bracket != Bracket::kGc && bracket != Bracket::kCompile && bracket != Bracket::kLogging &&
         bracket != Bracket::kEval && bracket != Bracket::kCallback;
}

}  // namespace

// ---- Stretches

void StepLane::AccountStretch(int64_t end_ns, const Measures& measures) {
  Piece& piece = cutter_.current();
  const bool in_gc = stack_.open(Bracket::kGc);
  if (piece.end != end_ns) piece.Add(row_, measures);
  piece.end = end_ns;
  if (stack_.open(Bracket::kCompile)) piece.compile_ns += measures.total();
  if (in_gc) piece.AddDetail({DetailKind::kGc, row_, SampleState::kUnknown, 0, 0, gc_generation_}, measures.gc, 0);
  if (keep_log_) {
    stretch_segments_.Measure(measures.blocked + measures.brief, measures.delay, measures.unknown);
    piece.host_log.Append(stretch_segments_, SegmentList::kMaxLog);
  }
  FlushStretchDetails(piece);
}

void StepLane::FlushStretchDetails(Piece& piece) {
  FlushSamples();
  if (!stretch_details_.entries().empty()) {
    for (const DetailTable::Entry& entry : stretch_details_.entries()) {
      piece.AddDetail(entry.key, entry.ns, entry.count);
    }
    stretch_details_.Clear();
  }
  if (!stretch_segments_.entries().empty()) {
    piece.segments.AppendPlain(stretch_segments_, writer_->max_segments());
    stretch_segments_.Clear();
  }
}

void StepLane::CloseStretch(const Event& mark) {
  const bool in_gc = stack_.open(Bracket::kGc);
  stretch_segments_.Add({meter_.cursor_ns(), mark.end_ns, row_, in_gc ? Mechanism::kGc : Mechanism::kUnknown, 0, 0},
                        max_stretch_segments());
  AccountStretch(mark.end_ns, meter_.Close(mark, in_gc));
  last_cpu_ns_ = mark.cpu_ns;
}

void StepLane::UpdateRow() {
  const Row row = stack_.CurrentRow();
  row_ = cutter_.validation_open() ? Tentative(row) : row;
}

void StepLane::KeepHostLog() {
  keep_log_ = true;
  for (const auto& piece : cutter_.pieces()) piece->host_log.Append(piece->segments, SegmentList::kMaxLog);
}

// ---- Events

void StepLane::OnMark(const Event& event) {
  if (watch_ended()) return;
  Event mark = event;
  if (!running_) {
    running_ = true;
    thread_ = mark.thread;
    mark.end_ns = std::max(mark.end_ns, floor_ns_);
    meter_.Start(mark);
    cutter_.StartLead(mark.end_ns, mark.kind == EventKind::kWatchBegins);
  }
  mark.end_ns = std::max(mark.end_ns, meter_.cursor_ns());  // late: it can only count from here
  CloseStretch(mark);
  cutter_.Now(mark.end_ns, mark.cpu_ns);
  switch (mark.kind) {
    case EventKind::kStep:
      OnStep();
      break;
    case EventKind::kBegin:
      Begin(mark);
      break;
    case EventKind::kEnd:
      End(mark);
      break;
    default:
      break;
  }
  UpdateRow();
}

Row StepLane::GapBase() const {
  const bool forward = evaluates_ && cutter_.NothingTrains();
  return stack_.GapBase(RowOf(forward ? Phase::kForward : Phase::kOther));
}

void StepLane::OnStep() {
  SettleGap(GapBase());
  cutter_.OnStep();
  // What seemed to be validation is what this loop is for.
  if (cutter_.NothingTrains() && cutter_.validation_open()) cutter_.CloseValidation(cutter_.pieces().front().get());
}

void StepLane::OnGilWait(const Event& event) {
  if (!in_loop()) return;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  const int64_t cursor_ns = meter_.cursor_ns();
  if (meter_.AddGilWait(event, &start_ns, &end_ns) > 0) AddWait(event, start_ns, end_ns, cursor_ns);
}

void StepLane::AddWait(const Event& event, int64_t start_ns, int64_t end_ns, int64_t cursor_ns) {
  const bool in_gc = stack_.open(Bracket::kGc);
  const size_t max = max_stretch_segments();
  stretch_segments_.Add({cursor_ns, start_ns, row_, in_gc ? Mechanism::kGc : Mechanism::kUnknown, 0, 0}, max);
  const Mechanism mechanism = MechanismOf(static_cast<GilWaitKind>(event.what));
  stretch_segments_.Add({start_ns, end_ns, row_, mechanism, event.object, event.stack}, max);
  const DetailKind kind = mechanism == Mechanism::kWorldStop    ? DetailKind::kWorldStop
                          : mechanism == Mechanism::kObjectLock ? DetailKind::kObjectLock
                                                                : DetailKind::kGilWait;
  stretch_details_.Add({kind, row_, SampleState::kGilWait, event.object, event.stack, 0}, end_ns - start_ns,
                       (event.flags & kGilStillHeld) != 0 ? 0 : 1);
}

void StepLane::OnSample(const Event& event) {
  if (!in_loop()) return;
  const SampleState state =
      event.what < kSampleStateCount ? static_cast<SampleState>(event.what) : SampleState::kUnknown;
  const int32_t code = state == SampleState::kBlocked ? Narrow(event.value) : 0;
  const int64_t ns = std::min(event.end_ns - event.start_ns, kMaxSampleNs);
  writer_->SawSample(state, ns);
  if (stretch_samples_.size() >= kMaxStretchSamples) FlushSamples();
  stretch_samples_.push_back({event.end_ns, ns, state, event.stack, code, event.thread, -1});
}

// A sample in a call says nothing of the time outside of calls.
void StepLane::FlushSamples() {
  for (const StretchSample& s : stretch_samples_) {
    if (s.call >= 0) {
      stretch_details_.Add({DetailKind::kCall, row_, s.state, s.thread, s.stack, s.call}, s.ns, 1);
    } else {
      stretch_details_.Add({DetailKind::kSample, row_, s.state, 0, s.stack, s.code}, s.ns, 1);
    }
  }
  stretch_samples_.clear();
}

void StepLane::OnOther(DetailKind kind, const Event& event) {
  if (!in_loop()) return;
  const int32_t code = kind == DetailKind::kBeside && event.what < kBesideSignCount ? event.what : 0;
  stretch_details_.Add({kind, row_, SampleState::kPython, event.object, event.stack, code},
                       std::min(event.end_ns - event.start_ns, kMaxSampleNs), 1);
  if (kind == DetailKind::kHold && event.object == stand_in_ && stand_in_ != 0 && in_backward()) {
    AddStandIns(std::max(event.start_ns, stand_in_ns_), event.end_ns, Mechanism::kPython);
  }
}

void StepLane::OnHost(const Event& event) {
  writer_->HostReading(event.end_ns, event.value, cutter_.pieces(), meter_.mark_ns());
}

void StepLane::MarkIncomplete() {
  if (running_) cutter_.current().flags |= kIncomplete;
}

void StepLane::Finish(int64_t end_ns) {
  if (!running_) return;
  // The loop's end, but not what the program does after it: no more than another step's time after the last mark.
  const bool clocks = watch_ended() && watch_ends_.end_ns >= meter_.cursor_ns();
  if (clocks) end_ns = watch_ends_.end_ns;
  const int64_t tail_ns = end_ns - meter_.cursor_ns();
  const bool near = tail_ns >= 0 && end_ns - meter_.mark_ns() <= cutter_.LongestTail();
  if (near && clocks) {
    CloseStretch(watch_ends_);
    cutter_.Now(end_ns, last_cpu_ns_);
  } else if (near) {
    stretch_segments_.Add({meter_.cursor_ns(), end_ns, row_, Mechanism::kUnknown, 0, 0}, max_stretch_segments());
    AccountStretch(end_ns, meter_.CloseUnread(end_ns, stack_.open(Bracket::kGc)));
    cutter_.Now(end_ns, last_cpu_ns_);
  } else {
    std::unique_ptr<Piece> after = writer_->NewPiece(meter_.mark_ns());
    stretch_segments_.Clear();
    FlushStretchDetails(*after);
    writer_->PutOutside(std::move(after));
  }
  SettleGap(GapBase());
  if (cutter_.validation_open()) CloseValidation(nullptr);
  cutter_.Finish();
  running_ = false;
}

// ---- Brackets

void StepLane::Begin(const Event& mark) {
  if (mark.what >= kBracketCount) return;
  const Bracket bracket = static_cast<Bracket>(mark.what);
  if (bracket == Bracket::kEval) {
    BeginEval(mark);
    return;
  }
  // One object is never in the same bracket twice: the one before has lost its end, to an exception.
  if (mark.object != 0 && stack_.open(bracket)) {
    for (size_t depth = stack_.DepthOf(bracket, mark.object); depth > 0; --depth) PopFrame(mark, true);
  }
  if (Delimits(bracket)) {
    const bool forward = bracket == Bracket::kBackward && !stack_.InUserValidation();
    SettleGap(forward ? RowOf(Phase::kForward) : GapBase());
  }
  Frame frame{};
  frame.bracket = bracket;
  frame.phase = mark.phase < kPhaseCount ? static_cast<Phase>(mark.phase) : Phase::kOther;
  frame.object = mark.object;
  frame.value = mark.value;
  frame.start_ns = mark.end_ns;
  frame.cpu_ns = mark.cpu_ns;
  frame.gil_ns = meter_.gil_total_ns();
  frame.spans = checkpoint_spans_;
  switch (bracket) {
    case Bracket::kFetch:
      frame.first = loaders_->Fetch(mark.object);
      BeginFetch(mark);
      break;
    case Bracket::kLoaderStart:
      loaders_->Start(mark.object);
      if (!stack_.InUserValidation()) {
        if (!stack_.open(Bracket::kFetch) && !stack_.open(Bracket::kCallback)) cutter_.OnLoaderStart(mark.object);
        (cutter_.validation_open() ? cutter_.current().tentative_loader_start : cutter_.current().loader_start) = true;
      }
      break;
    case Bracket::kBackward:
      if (!stack_.open(Bracket::kBackward) && !stack_.open(Bracket::kFetch) && !TrainsAside()) {
        if (cutter_.validation_open()) {
          const Piece* soft = cutter_.soft_end();
          CloseValidation(soft != nullptr ? soft : cutter_.pieces().front().get());
        }
        cutter_.OnBackwardBegin();
        stand_in_called_ = false;
        stand_in_gc_ns_ = 0;  // its end may have come outside of backward
      }
      break;
    case Bracket::kOptimizer:
      if (!stack_.open(Bracket::kOptimizer) && !TrainsAside()) cutter_.OnOptimizerBegin(mark.object);
      break;
    case Bracket::kGc:
      gc_generation_ = Narrow(mark.value);
      break;
    case Bracket::kCompile:
      if (!stack_.open(Bracket::kFetch) && !stack_.InUserValidation() && !TrainsAside()) cutter_.OnCompileBegin();
      cutter_.current().compiled = true;
      break;
    default:
      break;
  }
  stack_.Push(frame);
}

// Before the first step what a callback or a validation trains is another model: the loop has yet to begin.
bool StepLane::TrainsAside() const {
  return !cutter_.started() && (stack_.open(Bracket::kCallback) || stack_.InUserValidation());
}

void StepLane::End(const Event& mark) {
  if (mark.what >= kBracketCount) return;
  const Bracket bracket = static_cast<Bracket>(mark.what);
  if (bracket == Bracket::kEval) {
    EndEval(mark);
    return;
  }
  size_t depth = stack_.DepthOf(bracket);
  if (depth == 0) return;  // it began before the watch
  for (; depth > 1; --depth) PopFrame(mark, true);
  PopFrame(mark, false);
}

void StepLane::PopFrame(const Event& mark, bool unwound) {
  if (Delimits(stack_.frames().back().bracket)) SettleGap(GapBase());
  const Frame frame = stack_.Pop();
  const int64_t wall_ns = mark.end_ns - frame.start_ns;
  switch (frame.bracket) {
    case Bracket::kFetch:
      EndFetch(mark, frame, unwound);
      break;
    case Bracket::kLoaderStart:
      if (!unwound) AddSpan(SpanKind::kLoaderStart, mark, frame, 0);
      if (!stack_.open(Bracket::kCallback)) cutter_.OnLoaderStarted();
      break;
    case Bracket::kBackward:
      if (!stack_.open(Bracket::kBackward) && !stack_.open(Bracket::kFetch) && !stack_.open(Bracket::kOptimizer)) {
        cutter_.OnBackwardEnd();
      }
      break;
    case Bracket::kOptimizer:
      if (!stack_.open(Bracket::kOptimizer)) cutter_.OnOptimizerEnd();
      break;
    case Bracket::kCheckpoint:
      AddSpan(SpanKind::kCheckpoint, mark, frame, unwound ? -1 : mark.value);
      cutter_.current().flags |= kHasCheckpoint;
      ++checkpoint_spans_;
      break;
    case Bracket::kLogging:
      if (wall_ns >= kWorthASpanNs && !stack_.open(Bracket::kLogging)) AddSpan(SpanKind::kLogging, mark, frame, 0);
      break;
    case Bracket::kCallback:
      if (wall_ns >= kWorthASpanNs) AddSpan(SpanKind::kCallback, mark, frame, 0);
      break;
    case Bracket::kGc: {
      const int32_t generation = Narrow(frame.value);
      cutter_.current().AddDetail({DetailKind::kGc, row_, SampleState::kUnknown, 0, 0, generation}, 0, 1);
      if (wall_ns >= kWorthASpanNs) AddSpan(SpanKind::kGc, mark, frame, generation);
      break;
    }
    case Bracket::kCompile:
      if (!stack_.open(Bracket::kCompile)) AddSpan(SpanKind::kCompile, mark, frame, 0);
      break;
    case Bracket::kUserPhase:
      if (frame.phase == Phase::kValidation && stack_.knows_validation() && !stack_.InUserValidation()) {
        AddSpan(SpanKind::kValidation, mark, frame, 0);
        cutter_.current().flags |= kHasValidation;
      }
      if (frame.phase == Phase::kCheckpoint && frame.spans == checkpoint_spans_) {
        AddSpan(SpanKind::kCheckpoint, mark, frame, -1);
        cutter_.current().flags |= kHasCheckpoint;
        ++checkpoint_spans_;
      }
      break;
    case Bracket::kEval:
      break;
  }
}

// ---- Fetches and validation

void StepLane::BeginFetch(const Event& mark) {
  if (stack_.open(Bracket::kFetch)) return;  // a dataset that reads another loader: its own business
  fetch_soft_ = false;
  const bool no_grad = (mark.flags & kGradDisabled) != 0;
  evaluates_ |= no_grad;
  if (stack_.InUserValidation()) {
    cutter_.OnFetchBegin(false);
    return;
  }
  const bool open_piece = cutter_.CanCutAtFetch(mark.object);
  if (cutter_.NothingTrains()) {
    cutter_.OnFetchBegin(!stack_.open(Bracket::kCallback) && open_piece);
    return;
  }
  if (cutter_.validation_open()) {
    if (!no_grad && loaders_->IsTraining(mark.object)) {
      cutter_.OnFetchBegin(true);
      CloseValidation(&cutter_.current());
      if (!cutter_.CanCutAtFetch(mark.object)) cutter_.DropPending();
      return;
    }
    const bool known =
        std::find(no_grad_loaders_.begin(), no_grad_loaders_.end(), mark.object) != no_grad_loaders_.end();
    if (no_grad) {
      cutter_.DropSoftEnd();  // still validating
    } else {
      fetch_soft_ = no_grad_fetched_ && !known && cutter_.soft_end() == nullptr;
    }
    cutter_.OnFetchBegin(fetch_soft_ || open_piece);
  } else if (no_grad) {
    if (cutter_.KeepChain()) {
      OpenValidation(0, true);
      cutter_.OnFetchBegin(open_piece);
    } else {
      cutter_.OnFetchBegin(open_piece);
      OpenValidation(0, false);
    }
  } else {  // what a callback fetches begins no step: training has a loader of its own
    cutter_.OnFetchBegin(!stack_.open(Bracket::kCallback) && open_piece);
    return;
  }
  if (validation_loader_ == 0) validation_loader_ = mark.object;
  if (no_grad) {
    no_grad_fetched_ = true;
    const bool known =
        std::find(no_grad_loaders_.begin(), no_grad_loaders_.end(), mark.object) != no_grad_loaders_.end();
    if (!known && no_grad_loaders_.size() < kMaxNoGradLoaders) no_grad_loaders_.push_back(mark.object);
  }
}

void StepLane::EndFetch(const Event& mark, const Frame& frame, bool unwound) {
  const bool outermost = !stack_.open(Bracket::kFetch);
  const FetchEnd how = FetchEndOf(mark.value);
  const bool behind = how == kFetchedBehind;
  const bool fetched = !unwound && (how == kFetchedBatch || behind);
  const bool exhausted = !unwound && how == kFetchExhausted;
  const bool user_validation = stack_.InUserValidation();
  const bool tentative = cutter_.validation_open() && !user_validation;
  Piece& piece = cutter_.current();
  if (fetched || exhausted) {
    FetchRecord record{};
    record.loader = frame.object;
    record.start_ns = frame.start_ns;
    record.end_ns = mark.end_ns;
    record.cpu_ns = std::max<int64_t>(mark.cpu_ns - frame.cpu_ns, 0);
    record.gil_wait_ns = meter_.gil_total_ns() - frame.gil_ns;
    record.ready = behind ? 0 : Narrow(frame.value);
    record.awaited = AwaitedOf(mark.value);
    record.first = frame.first;
    record.exhausted = exhausted;
    record.validation = user_validation;
    record.on_step_thread = true;
    if (piece.pending_fetches.size() < Piece::kMaxPending) {
      piece.pending_fetches.push_back({record, tentative});
    } else {
      record.validation |= tentative;
      record.step = cutter_.guessed_index();
      writer_->sink()->OnFetch(record);
    }
  }
  if (fetched && frame.first) {
    AddSpan(SpanKind::kFirstFetch, mark, frame, 0);
    if (!user_validation) (tentative ? piece.tentative_loader_start : piece.loader_start) = true;
  }
  if (!outermost || (stack_.open(Bracket::kCallback) && !tentative)) return;
  if (fetched && !user_validation) ++(tentative ? piece.tentative_fetches : piece.fetches);
  if (user_validation) {
    cutter_.DropPending();
  } else if (fetched) {
    cutter_.OnFetched(frame.object, fetch_soft_);
  } else {
    cutter_.OnFetchFailed(exhausted);
  }
}

void StepLane::BeginEval(const Event& mark) {
  if (stack_.open(Bracket::kBackward) || stack_.InUserValidation()) return;
  evaluates_ = true;
  if (cutter_.NothingTrains()) return;
  if (!cutter_.validation_open()) {
    OpenValidation(mark.object, false);
    validation_by_module_ = true;
  } else if (!validation_by_module_) {  // opened by a fetch; the module's way back is the better end
    validation_by_module_ = true;
    validation_object_ = mark.object;
  }
}

void StepLane::EndEval(const Event& mark) {
  if (!cutter_.validation_open() || !validation_by_module_) return;
  if (mark.object != 0 && validation_object_ != 0 && mark.object != validation_object_) return;
  CloseValidation(nullptr);
}

void StepLane::OpenValidation(uint32_t object, bool whole_piece) {
  const Piece& piece = cutter_.current();
  validation_ns_ = whole_piece ? piece.start_ns : meter_.mark_ns();
  validation_cpu_ns_ = whole_piece ? piece.start_cpu_ns : last_cpu_ns_;
  validation_object_ = object;
  validation_loader_ = 0;
  validation_by_module_ = false;
  no_grad_fetched_ = false;
  no_grad_loaders_.clear();
  cutter_.OpenValidation(whole_piece);
}

void StepLane::CloseValidation(const Piece* until) {
  const int64_t end_ns = until != nullptr ? until->start_ns : meter_.mark_ns();
  const int64_t end_cpu_ns = until != nullptr ? until->start_cpu_ns : last_cpu_ns_;
  if (end_ns > validation_ns_) {
    Span span{};
    span.kind = SpanKind::kValidation;
    span.start_ns = validation_ns_;
    span.end_ns = end_ns;
    span.cpu_ns = std::max<int64_t>(end_cpu_ns - validation_cpu_ns_, 0);
    span.object = validation_by_module_ ? validation_object_ : validation_loader_;
    span.thread = thread_;
    PutSpan(cutter_.PieceBefore(until), span);
  }
  cutter_.CloseValidation(until);
}

void StepLane::AddSpan(SpanKind kind, const Event& mark, const Frame& frame, int64_t value) {
  Span span{};
  span.kind = kind;
  span.start_ns = frame.start_ns;
  span.end_ns = mark.end_ns;
  span.cpu_ns = std::max<int64_t>(mark.cpu_ns - frame.cpu_ns, 0);
  span.object = frame.object;
  span.value = value;
  span.thread = thread_;
  PutSpan(cutter_.current(), span);
}

void StepLane::PutSpan(Piece& piece, Span span) {
  if (piece.spans.size() < Piece::kMaxPending) {
    piece.spans.push_back(span);
    return;
  }
  span.step = cutter_.guessed_index();
  writer_->sink()->OnSpan(span);
}

}  // namespace trainperf
