// Decides where steps end: rules 1 to 5 of docs/internals.md. Keeps the step thread's time as pieces until it is
// certain which of their boundaries are cuts, then gives them to the StepWriter.
//
//   cutter.StartLead(now, false);
//   cutter.Now(mark);                        // before every call below; current() is accounted for up to there
//   cutter.OnBackwardBegin(); ...            // as the marks come; each may open a piece, merge some, or put out steps
//   cutter.Finish();

#ifndef TRAINPERF_TIMELINE_STEP_CUTTER_H_
#define TRAINPERF_TIMELINE_STEP_CUTTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/timeline/loader_log.h"
#include "trainperf/timeline/piece.h"
#include "trainperf/timeline/step_writer.h"

namespace trainperf {

class StepCutter {
 public:
  static constexpr int kMaxHeld = 32;                   // cuts held back until the rule is certain
  static constexpr int64_t kMaxHeldNs = 5'000'000'000;  // unless only a second look could tell
  // Backwards may be one step's micro-batches, or samples.
  static constexpr int kMaxHeldBackwards = 1024;
  static constexpr int64_t kMaxHeldBackwardsNs = 60'000'000'000;  // then kMaxHeld are enough
  static constexpr int64_t kChainNs = 10'000'000;                 // from iter(loader) to the fetch that it belongs to

  // `infers`: nothing trains, so each batch is a step (rule 5).
  StepCutter(StepWriter* writer, LoaderLog* loaders, bool infers = false)
      : writer_(writer),
        loaders_(loaders),
        steps_before_(writer->steps_put()),
        mode_(infers ? Mode::kInference : Mode::kUndecided) {}

  // `with_watch`: not with a mark of the loop's own.
  void StartLead(int64_t start_ns, bool with_watch) {
    pieces_.push_back(writer_->NewPiece(start_ns));
    lead_with_watch_ = with_watch;
  }
  void Now(int64_t now_ns, int64_t cpu_ns) {
    now_ns_ = now_ns;
    cpu_ns_ = cpu_ns;
  }
  Piece& current() { return *pieces_.back(); }
  const std::vector<std::unique_ptr<Piece>>& pieces() const { return pieces_; }

  // Fetches, the outermost only. Where a step may end at one, and whenever a validation may, it starts a piece of its
  // own.
  bool CanCutAtFetch(uint32_t loader) const;
  void OnLoaderStart(uint32_t loader);
  void OnLoaderStarted() { chain_ns_ = now_ns_; }
  bool KeepChain();  // whether current() starts at the iter(loader) just before
  void OnFetchBegin(bool open_piece);
  void OnFetched(uint32_t loader, bool soft);
  void OnFetchFailed(bool exhausted);
  void DropPending();

  void OnCompileBegin();  // outside of fetches
  void OnBackwardBegin();
  void OnBackwardEnd();
  void OnOptimizerBegin(uint32_t optimizer);
  void OnOptimizerEnd();
  void OnStep();
  void AdvanceTo(int64_t watermark_ns);
  void Finish();
  void Discard();  // of all that is held nothing is put out

  // What comes from now on, and with `whole_piece` also what current() holds already, may be validation.
  void OpenValidation(bool whole_piece);
  // It was validation up to where `until` starts; nullptr: up to now.
  void CloseValidation(const Piece* until);
  bool validation_open() const { return validation_open_; }
  Piece* soft_end();  // nullptr: none
  void DropSoftEnd();
  Piece& PieceBefore(const Piece* until);

  bool started() const { return started_; }
  // Two calls of run.step() had no backward before or between them: there is no training for a validation to be of.
  bool NothingTrains() const {
    return mode_ == Mode::kInference || (mode_ == Mode::kExplicit && started_ && !lead_held_ && !backward_seen_);
  }
  int64_t first_step_ns() const { return first_step_ns_; }
  int64_t incomplete() const { return incomplete_; }
  int64_t guessed_index() const;  // of the step that is open now; -1 in the lead
  int64_t LongestTail() const;    // from the last mark to the end: what is longer is not the last step's

 private:
  enum class Mode { kUndecided, kFetch, kOptimizer, kBackward, kExplicit, kInference };

  void Open(Cut cut);
  void Merge(size_t index);
  void MergeAll(Cut cut);
  size_t FindLast(Cut cut) const;  // 0: none
  int Count(Cut cut) const;
  bool IsFinal(size_t index) const;
  bool MostlyCompiling(size_t index) const;  // from where pieces_[index] starts until now
  void StartFirstStep();
  void DropLead();
  void HoldLead();
  bool IsLeadAStep() const;
  void JudgeLead();
  bool IsTailAStep() const;
  void FetchCut(size_t index);
  void InferenceCut(size_t index);
  void Abandon();
  bool WantsOptimizerCuts();
  void EndIteration(size_t again);
  void Decide(bool finishing);
  void Release(bool finishing);
  void Emit(size_t count);
  void FetchedAgain();
  void AddFetched(uint32_t loader);

  StepWriter* const writer_;
  LoaderLog* const loaders_;
  const int64_t steps_before_;  // that another cutter has put out
  std::vector<std::unique_ptr<Piece>> pieces_;
  int64_t now_ns_ = 0;
  int64_t cpu_ns_ = 0;
  Mode mode_;
  bool started_ = false;
  bool lead_held_ = false;     // pieces_[0] may be the first step: what run.step() ended first, without a backward
  bool called_first_ = false;  // run.step() begins the loop's body: what it ended first was much shorter than a step
  bool backward_seen_ = false;
  int64_t called_ns_ = 0;       // the last run.step()
  int64_t called_step_ns_ = 0;  // from the one before to it
  bool lead_fetched_ = false;   // it starts at a fetch
  bool lead_with_watch_ = false;
  bool pending_ = false;  // current() starts at a fetch, or iter(loader), that may become a cut
  bool validation_open_ = false;
  bool optimizer_seen_ = false;
  bool fetch_cut_seen_ = false;
  bool prefetching_ = false;  // the first backward came after several fetches from one loader
  bool several_ = false;      // steps may take several batches from one loader
  int64_t chain_ns_ = 0;
  int64_t first_step_ns_ = 0;
  int64_t incomplete_ = 0;
  // Since the last cut at a fetch:
  int64_t backwards_ = 0;
  int64_t repeats_ = 0;  // how often an optimizer stepped again
  bool exhausted_ = false;
  std::vector<uint32_t> fetched_;  // loaders
  std::vector<uint32_t> stepped_;  // optimizers, in this iteration
  // In the iteration before, while they cut:
  std::vector<uint32_t> iteration_;
  size_t replaced_ = 0;  // so many of stepped_ may have been replaced by those after them
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_STEP_CUTTER_H_
