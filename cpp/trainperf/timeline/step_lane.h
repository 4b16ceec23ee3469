// The step thread's own lane: its marks become stretches with a phase, its brackets spans and fetches, its waits and
// samples details, all in the pieces that the StepCutter makes steps of.

#ifndef TRAINPERF_TIMELINE_STEP_LANE_H_
#define TRAINPERF_TIMELINE_STEP_LANE_H_

#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/timeline/bracket_stack.h"
#include "trainperf/timeline/loader_log.h"
#include "trainperf/timeline/step_cutter.h"
#include "trainperf/timeline/step_writer.h"
#include "trainperf/timeline/stretch_meter.h"

namespace trainperf {

class StepLane {
 public:
  // Nothing is placed before `floor_ns`, where another lane may have ended. `infers`: of a thread that only infers,
  // each batch is a step; it has no backward and no run.step().
  StepLane(StepWriter* writer, LoaderLog* loaders, int64_t floor_ns, bool infers = false)
      : writer_(writer), loaders_(loaders), cutter_(writer, loaders, infers), floor_ns_(floor_ns), evaluates_(infers) {
    if (infers) stack_.KnowNoValidation();
  }

  // The step thread's own events; times are sane (0 <= start_ns <= end_ns < 2^61), everything else may be anything.
  void OnMark(const Event& event);  // kStep, kBegin, kEnd; kWatchBegins before them all
  void OnGilWait(const Event& event);
  // `waits_until_ns`: up to there the call waits for the device's earlier work, whatever it does.
  void OnCall(const Event& event, int64_t waits_until_ns);
  void OnSample(const Event& event);
  // Calls and waits of other threads. The one that launches work while the step thread is blocked in backward is
  // autograd's, and stands in for it.
  void OnOthersCall(const Event& event, int64_t waits_until_ns);
  void OnOthersEvent(const Event& event);  // waits for the GIL, collections
  // Of any thread.
  void OnOther(DetailKind kind, const Event& event);  // kHold, kBeside
  void OnHost(const Event& event);
  // What comes after the first of them is not the loop's.
  void OnWatchEnds(const Event& event) {
    if (!watch_ended()) watch_ends_ = event;
  }
  void MarkIncomplete();
  void AdvanceTo(int64_t watermark_ns) { cutter_.AdvanceTo(watermark_ns); }
  void Finish(int64_t end_ns);
  void Discard() { cutter_.Discard(); }  // instead

  bool watch_ended() const { return watch_ends_.thread != 0; }
  int64_t watch_ends_ns() const { return watch_ends_.end_ns; }
  int64_t last_mark_ns() const { return meter_.mark_ns(); }
  bool in_backward() const { return stack_.open(Bracket::kBackward); }
  // A device is fed: keeps what its idle time is explained by.
  void KeepHostLog();
  const StepCutter& cutter() const { return cutter_; }

 private:
  using Frame = BracketStack::Frame;

  struct StretchSample {
    int64_t at_ns;
    int64_t ns;
    SampleState state;
    StackId stack;
    int32_t code;
    ThreadId thread;
    int32_t call;  // -1: not in one
  };

  bool in_loop() const { return running_ && !watch_ended(); }
  void CloseStretch(const Event& mark);
  void AddCall(const Event& event, int64_t waits_until_ns, bool stand_in);
  void AddStandIns(int64_t start_ns, int64_t end_ns, Mechanism mechanism);
  void AddCallPart(int64_t start_ns, int64_t end_ns, Mechanism mechanism, StretchMeter::Caller caller);
  void AddWait(const Event& event, int64_t start_ns, int64_t end_ns, int64_t cursor_ns);
  void FlushSamples();
  size_t max_stretch_segments() const { return keep_log_ ? SegmentList::kMaxLog : writer_->max_segments(); }
  void AccountStretch(int64_t end_ns, const Measures& measures);
  void FlushStretchDetails(Piece& piece);
  void Begin(const Event& mark);
  void End(const Event& mark);
  bool TrainsAside() const;
  void PopFrame(const Event& mark, bool unwound);
  void SettleGap(Row row) { cutter_.current().SettleGap(row); }
  Row GapBase() const;
  void OnStep();
  void UpdateRow();

  void BeginFetch(const Event& mark);
  void EndFetch(const Event& mark, const Frame& frame, bool unwound);
  void BeginEval(const Event& mark);
  void EndEval(const Event& mark);
  void OpenValidation(uint32_t object, bool whole_piece);
  void CloseValidation(const Piece* until);
  void AddSpan(SpanKind kind, const Event& mark, const Frame& frame, int64_t value);
  void PutSpan(Piece& piece, Span span);

  StepWriter* const writer_;
  LoaderLog* const loaders_;
  StepCutter cutter_;
  BracketStack stack_;
  StretchMeter meter_;
  const int64_t floor_ns_;
  Event watch_ends_{};    // its thread is 0: not yet
  bool running_ = false;  // a mark has come
  ThreadId thread_ = 0;
  Row row_ = kGapRow;
  int32_t gc_generation_ = 0;
  int64_t last_cpu_ns_ = 0;
  int64_t checkpoint_spans_ = 0;

  // Of the stretch that is not yet closed by a mark.
  bool keep_log_ = false;
  std::vector<StretchSample> stretch_samples_;
  DetailTable stretch_details_;
  SegmentList stretch_segments_;

  // Of the backward that may be open.
  ThreadId stand_in_ = 0;  // 0: none yet
  bool stand_in_called_ = false;
  int64_t stand_in_ns_ = 0;     // its last call's end
  int64_t stand_in_gc_ns_ = 0;  // where its open collection began; 0: none

  bool evaluates_;  // it was in eval mode, or fetched without gradients: where nothing trains, a gap is a forward

  // Of the validation that may be open.
  uint32_t validation_object_ = 0;  // the module that opened it
  uint32_t validation_loader_ = 0;
  bool validation_by_module_ = false;
  bool no_grad_fetched_ = false;
  bool fetch_soft_ = false;
  int64_t validation_ns_ = 0;
  int64_t validation_cpu_ns_ = 0;
  std::vector<uint32_t> no_grad_loaders_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_STEP_LANE_H_
