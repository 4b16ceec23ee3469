#include "trainperf/timeline/step_cutter.h"

#include <algorithm>
#include <utility>

namespace trainperf {
namespace {

constexpr size_t kMaxRemembered = 64;  // loaders of a step, optimizers of an iteration

bool Contains(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Of ids without repeats.
bool SameIds(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&b](uint32_t id) { return Contains(b, id); });
}

}  // namespace

// ---- Pieces

void StepCutter::Open(Cut cut) {
  std::unique_ptr<Piece> piece = writer_->NewPiece(now_ns_);
  piece->cut = cut;
  piece->start_cpu_ns = cpu_ns_;
  piece->tentative = validation_open_;
  pieces_.push_back(std::move(piece));
}

void StepCutter::Merge(size_t index) {
  pieces_[index - 1]->Append(*pieces_[index], writer_->max_segments());
  writer_->Merged(std::move(pieces_[index]));
  pieces_.erase(pieces_.begin() + static_cast<ptrdiff_t>(index));
}

void StepCutter::MergeAll(Cut cut) {
  for (size_t i = pieces_.size(); i-- > 1;) {
    if (pieces_[i]->cut == cut) Merge(i);
  }
}

size_t StepCutter::FindLast(Cut cut) const {
  for (size_t i = pieces_.size(); i-- > 1;) {
    if (pieces_[i]->cut == cut) return i;
  }
  return 0;
}

int StepCutter::Count(Cut cut) const {
  int count = 0;
  for (size_t i = 1; i < pieces_.size(); ++i) count += pieces_[i]->cut == cut;
  return count;
}

void StepCutter::DropPending() {
  if (!pending_) return;
  pending_ = false;
  Merge(pieces_.size() - 1);
}

Piece& StepCutter::PieceBefore(const Piece* until) {
  for (size_t i = 1; i < pieces_.size(); ++i) {
    if (pieces_[i].get() == until) return *pieces_[i - 1];
  }
  return current();
}

// ---- Fetches (rule 2)

bool StepCutter::CanCutAtFetch(uint32_t loader) const {
  if (mode_ == Mode::kInference) return !started_ || exhausted_ || Contains(fetched_, loader);
  if (mode_ == Mode::kExplicit || FindLast(Cut::kMaybeFetch) != 0) return false;
  return started_ ? backwards_ > 0 : FindLast(Cut::kFetch) == 0;
}

bool StepCutter::KeepChain() {
  if (pending_ && now_ns_ - chain_ns_ > kChainNs) DropPending();
  return pending_;
}

void StepCutter::OnLoaderStart(uint32_t loader) {
  KeepChain();
  // The loader starts again, and what was fetched from it before was never trained on.
  if (!validation_open_ && Contains(fetched_, loader)) Abandon();
  if (mode_ == Mode::kInference && !fetched_.empty()) exhausted_ = true;  // another loop begins
  if (!pending_) Open(Cut::kNone);
  pending_ = true;
  chain_ns_ = now_ns_;
}

void StepCutter::OnFetchBegin(bool open_piece) {
  KeepChain();
  if (!open_piece) {
    DropPending();
  } else if (!pending_) {
    Open(Cut::kNone);
    pending_ = true;
  }
}

void StepCutter::OnFetched(uint32_t loader, bool soft) {
  if (!pending_) {
    if (validation_open_) return;
    if (Contains(fetched_, loader)) FetchedAgain();
    AddFetched(loader);
    return;
  }
  if (mode_ == Mode::kExplicit && !soft) {
    DropPending();
    return;
  }
  pending_ = false;
  if (mode_ == Mode::kInference) {
    InferenceCut(pieces_.size() - 1);
    AddFetched(loader);
    return;
  }
  if (validation_open_) {
    current().cut = Cut::kMaybeFetch;
    current().soft = soft;
    return;
  }
  FetchCut(pieces_.size() - 1);
  AddFetched(loader);
}

void StepCutter::OnFetchFailed(bool exhausted) {
  exhausted_ |= exhausted && !validation_open_;
  if (!pending_) return;
  if (exhausted && prefetching_ && backward_seen_ && !validation_open_ && CanCutAtFetch(0)) {
    pending_ = false;
    if (const size_t before = FindLast(Cut::kDrained); before != 0) Merge(before);
    current().cut = Cut::kDrained;
    return;
  }
  DropPending();
}

// Without a backward since. In a loop that has long been seen to train on each batch by itself, the one before was
// skipped; its time is this step's.
void StepCutter::FetchedAgain() {
  if (mode_ == Mode::kUndecided) {
    several_ = true;
  } else if (mode_ == Mode::kFetch && !several_ && !prefetching_) {
    ++incomplete_;
  }
}

void StepCutter::AddFetched(uint32_t loader) {
  if (!started_ && Contains(fetched_, loader)) prefetching_ = true;
  if (fetched_.size() < kMaxRemembered && !Contains(fetched_, loader)) fetched_.push_back(loader);
}

// A step ends where pieces_[index] starts.
void StepCutter::FetchCut(size_t index) {
  pieces_[index]->cut = Cut::kFetch;
  pieces_[index]->soft = false;
  MergeAll(Cut::kDrained);
  MergeAll(Cut::kOptimizerCandidate);
  MergeAll(Cut::kOptimizerReplaced);
  stepped_.clear();
  iteration_.clear();
  if (started_) {
    fetch_cut_seen_ = true;
    if (mode_ == Mode::kUndecided) {  // the other rules have no say any more
      MergeAll(Cut::kOptimizer);
      MergeAll(Cut::kBackward);
    }
    if (mode_ == Mode::kBackward || (mode_ == Mode::kOptimizer && repeats_ <= kMaxHeld)) {
      for (size_t i = pieces_.size(); i-- > 1;) {
        if (pieces_[i]->cut == Cut::kBackward && !IsFinal(i)) Merge(i);
      }
      mode_ = Mode::kFetch;
    }
  }
  backwards_ = 0;
  for (const auto& piece : pieces_) {
    if (piece->start_ns >= pieces_[FindLast(Cut::kFetch)]->start_ns) backwards_ += piece->backwards;
  }
  repeats_ = 0;
  exhausted_ = false;
  fetched_.clear();
  Release(false);
}

// Rule 5: each batch is a step, and two loaders that are read in turn make one.
void StepCutter::InferenceCut(size_t index) {
  pieces_[index]->cut = Cut::kFetch;
  exhausted_ = false;
  fetched_.clear();
  if (!started_) {
    while (index > 1) Merge(--index);
    pieces_[index]->cut = Cut::kStart;
    started_ = true;
    first_step_ns_ = pieces_[index]->start_ns;
    DropLead();
  }
  Release(false);
}

// The batch that opened this step was never trained on: it is no step.
void StepCutter::Abandon() {
  if (backwards_ > 0 || mode_ == Mode::kExplicit || mode_ == Mode::kInference) return;
  fetched_.clear();
  if (!exhausted_) ++incomplete_;  // zip() drops a batch when its other loader ends: nothing is wrong
  exhausted_ = false;
  const size_t first = FindLast(Cut::kFetch);
  if (first == 0) return;
  while (pieces_.size() > first) Merge(pieces_.size() - 1);
  pending_ = false;
  if (started_) backwards_ = 1;  // else there would have been no cut
}

// ---- Backward (rule 4)

void StepCutter::OnBackwardBegin() {
  DropPending();
  backward_seen_ = true;
  if (!started_) {
    StartFirstStep();
  } else if (const size_t drained = FindLast(Cut::kDrained); drained != 0) {
    FetchCut(drained);
  }
  for (const uint32_t loader : fetched_) loaders_->MarkTraining(loader);
  ++current().backwards;
  if (++backwards_ == 1 || mode_ == Mode::kBackward) Release(false);
}

void StepCutter::OnBackwardEnd() {
  DropPending();
  if (!started_ || optimizer_seen_) return;
  if (mode_ != Mode::kBackward && (mode_ != Mode::kUndecided || fetch_cut_seen_)) return;
  Open(Cut::kBackward);
  Release(false);
}

// ---- Optimizers (rule 3)

void StepCutter::OnOptimizerBegin(uint32_t optimizer) {
  DropPending();
  if (mode_ == Mode::kInference) {
    ++current().optimizer_steps;
    return;
  }
  if (!started_) {
    stepped_.assign(1, optimizer);
    return;
  }
  ++current().optimizer_steps;
  if (!optimizer_seen_) {
    optimizer_seen_ = true;
    if (mode_ == Mode::kUndecided) MergeAll(Cut::kBackward);  // they were micro-batches
    if (mode_ == Mode::kBackward) {
      for (size_t i = pieces_.size(); i-- > 1;) {
        if (pieces_[i]->cut == Cut::kBackward && !IsFinal(i)) Merge(i);
      }
      mode_ = Mode::kOptimizer;
    }
  }
  const auto again = std::find(stepped_.begin(), stepped_.end(), optimizer);
  if (again != stepped_.end()) {
    ++repeats_;
    EndIteration(static_cast<size_t>(again - stepped_.begin()));
  } else if (const size_t candidate = FindLast(Cut::kOptimizerCandidate); candidate != 0) {
    // All have stepped that the iteration before had: it may come in their place, or beside them.
    const bool whole = SameIds(stepped_, iteration_) && FindLast(Cut::kOptimizerReplaced) == 0;
    if (whole) {
      pieces_[candidate]->cut = Cut::kOptimizerReplaced;
      replaced_ = stepped_.size();
    } else {
      Merge(candidate);
    }
  }
  if (stepped_.size() < kMaxRemembered) stepped_.push_back(optimizer);
}

// stepped_[again] steps again.
void StepCutter::EndIteration(size_t again) {
  if (const size_t replaced = FindLast(Cut::kOptimizerReplaced); replaced != 0) {
    if (again >= replaced_) {
      pieces_[replaced]->cut = Cut::kOptimizer;
      stepped_.erase(stepped_.begin(), stepped_.begin() + static_cast<ptrdiff_t>(replaced_));
    } else {
      Merge(replaced);
    }
  }
  iteration_ = std::move(stepped_);
  stepped_.clear();
  if (const size_t candidate = FindLast(Cut::kOptimizerCandidate); candidate != 0) {
    pieces_[candidate]->cut = Cut::kOptimizer;
    Release(false);
  }
}

bool StepCutter::WantsOptimizerCuts() {
  if (!started_ || mode_ == Mode::kExplicit || mode_ == Mode::kInference) return false;
  if (mode_ == Mode::kOptimizer || (mode_ == Mode::kUndecided && !fetch_cut_seen_)) return true;
  if (repeats_ < kMaxHeld) return false;
  // One batch is trained on again and again: from here on each iteration is a step, as without a DataLoader.
  mode_ = Mode::kOptimizer;
  return true;
}

void StepCutter::OnOptimizerEnd() {
  DropPending();
  if (!started_) stepped_.clear();
  if (!WantsOptimizerCuts()) return;
  if (const size_t before = FindLast(Cut::kOptimizerCandidate); before != 0) Merge(before);
  Open(Cut::kOptimizerCandidate);
}

// ---- run.step() (rule 1)

void StepCutter::OnStep() {
  DropPending();
  called_step_ns_ = now_ns_ - called_ns_;
  called_ns_ = now_ns_;
  if (mode_ != Mode::kExplicit) {
    for (size_t i = pieces_.size(); started_ && i-- > 1;) {
      if (mode_ == Mode::kUndecided || !IsFinal(i)) Merge(i);
    }
    mode_ = Mode::kExplicit;
    if (!started_) {
      HoldLead();
      return;
    }
  }
  if (lead_held_) JudgeLead();
  Open(Cut::kExplicit);
  Release(false);
  backwards_ = 0;
  exhausted_ = false;
  fetched_.clear();
}

// ---- Validation

void StepCutter::OpenValidation(bool whole_piece) {
  validation_open_ = true;
  if (whole_piece) current().MakeTentative();
  current().tentative = true;
}

Piece* StepCutter::soft_end() {
  for (const auto& piece : pieces_) {
    if (piece->soft) return piece.get();
  }
  return nullptr;
}

void StepCutter::DropSoftEnd() {
  for (size_t i = pieces_.size(); i-- > 1;) {
    if (!pieces_[i]->soft) continue;
    pieces_[i]->soft = false;
    Merge(i);
  }
}

void StepCutter::CloseValidation(const Piece* until) {
  validation_open_ = false;
  size_t refuted = pieces_.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].get() == until) refuted = i;
  }
  std::vector<uint32_t> loaders;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = *pieces_[i];
    if (i < refuted) {
      piece.Confirm();
      continue;
    }
    const bool had_fetches = piece.tentative_fetches > 0;
    piece.Refute();
    if (!had_fetches) continue;
    for (const PendingFetch& fetch : piece.pending_fetches) {
      if (fetch.record.on_step_thread && !fetch.record.validation && !fetch.record.exhausted) {
        loaders.push_back(fetch.record.loader);
      }
    }
  }
  size_t cut = 0;
  for (size_t i = pieces_.size(); i-- > 1;) {
    if (pieces_[i]->cut != Cut::kMaybeFetch) continue;
    pieces_[i]->soft = false;
    const bool cuttable = mode_ != Mode::kExplicit && (started_ ? backwards_ > 0 : FindLast(Cut::kFetch) == 0);
    if (i >= refuted && cuttable && cut == 0) {
      cut = i;
    } else {
      Merge(i);
      if (cut > i) --cut;
    }
  }
  if (cut != 0) FetchCut(cut);
  for (const uint32_t loader : loaders) AddFetched(loader);
  Release(false);
}

// ---- Putting out

bool StepCutter::IsFinal(size_t index) const {
  switch (pieces_[index]->cut) {
    case Cut::kStart:
    case Cut::kExplicit:
    case Cut::kOptimizer:
      return true;
    case Cut::kFetch:
    case Cut::kBackward:
      if (mode_ == Mode::kInference) return true;
      // A step has a backward: else what follows belongs to the one before.
      for (size_t i = index; i < pieces_.size(); ++i) {
        if (pieces_[i]->backwards > 0) return true;
      }
      return false;
    default:
      return false;
  }
}

// Which rule holds for this loop.
void StepCutter::Decide(bool finishing) {
  const int64_t held_ns = now_ns_ - pieces_[0]->start_ns;
  const bool long_enough = finishing || held_ns > kMaxHeldNs;
  if (fetch_cut_seen_) {
    if (long_enough || Count(Cut::kFetch) >= kMaxHeld) mode_ = Mode::kFetch;
    return;
  }
  if (const int optimizer = Count(Cut::kOptimizer); optimizer > 0) {
    // After a fetch, a second one may yet show that these are several steps on one batch: time does not tell.
    const bool alone = finishing || fetched_.empty();
    if (optimizer >= kMaxHeld || (long_enough && alone)) mode_ = Mode::kOptimizer;
    return;
  }
  // An optimizer that is yet to come, or a second fetch, may show that these are micro-batches of one step.
  const int enough = held_ns > kMaxHeldBackwardsNs ? kMaxHeld : kMaxHeldBackwards;
  const int backward = Count(Cut::kBackward);
  if (backward >= enough || (finishing && backward > 0)) mode_ = Mode::kBackward;
}

void StepCutter::Release(bool finishing) {
  if (!started_ || lead_held_) return;
  if (mode_ == Mode::kUndecided) Decide(finishing);
  // A validation that never ends must not hold steps back for ever.
  for (size_t i = 0; pieces_.size() > 2 * kMaxHeld && i < pieces_.size() - kMaxHeld; ++i) pieces_[i]->Confirm();
  if (mode_ == Mode::kUndecided && !finishing) return;
  size_t last = pieces_.size() - 1;
  while (last > 0 && !IsFinal(last)) --last;
  size_t count = 0;
  while (count < last && !pieces_[count]->tentative) ++count;
  Emit(count);
}

// Puts out what the first `count` pieces hold; pieces_[count] starts a step.
void StepCutter::Emit(size_t count) {
  if (count == 0) return;
  for (size_t i = count; i-- > 1;) {
    if (IsFinal(i)) continue;
    Merge(i);
    --count;
  }
  while (count > 0 && !IsFinal(count)) --count;  // held up by a validation in the middle of a step
  for (size_t i = 0; i < count; ++i) writer_->PutStep(std::move(pieces_[i]));
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<ptrdiff_t>(count));
}

void StepCutter::AdvanceTo(int64_t watermark_ns) {
  if (!started_ || mode_ != Mode::kUndecided || watermark_ns - pieces_[0]->start_ns <= kMaxHeldNs) return;
  now_ns_ = std::max(now_ns_, watermark_ns);
  Release(false);
}

void StepCutter::Finish() {
  if (pieces_.empty()) return;
  DropPending();
  if (!started_) {
    if (!fetched_.empty() && !exhausted_) ++incomplete_;
    while (pieces_.size() > 1) Merge(pieces_.size() - 1);
    writer_->PutOutside(std::move(pieces_[0]));
    pieces_.clear();
    return;
  }
  if (lead_held_) DropLead();  // a single call: it begins what follows
  MergeAll(Cut::kDrained);
  MergeAll(Cut::kOptimizerCandidate);
  MergeAll(Cut::kOptimizerReplaced);
  if (mode_ == Mode::kUndecided) Decide(true);
  // What is left at the end without a backward is no step. The loop's own end belongs to the last step; a batch that
  // was fetched but never trained on does not.
  const size_t last = pieces_.size() - 1;
  bool outside = false;
  if (pieces_[last]->backwards == 0 && mode_ != Mode::kInference) {
    const Cut cut = pieces_[last]->cut;
    if (last > 0 && (cut == Cut::kBackward || (cut == Cut::kFetch && exhausted_))) {
      Merge(last);
    } else if ((cut == Cut::kFetch || mode_ == Mode::kExplicit) && !IsTailAStep()) {
      outside = true;
      if (pieces_[last]->fetches > 0 && !exhausted_) ++incomplete_;
    }
  }
  for (auto& piece : pieces_) {
    if (outside && piece == pieces_.back()) {
      writer_->PutOutside(std::move(piece));
    } else {
      writer_->PutStep(std::move(piece));
    }
  }
  pieces_.clear();
}

void StepCutter::Discard() {
  while (pieces_.size() > 1) Merge(pieces_.size() - 1);
  if (!pieces_.empty()) writer_->Merged(std::move(pieces_[0]));
  pieces_.clear();
}

int64_t StepCutter::guessed_index() const {
  if (!started_) return -1;
  const int held = Count(Cut::kFetch) + Count(Cut::kOptimizer) + Count(Cut::kBackward) + Count(Cut::kExplicit);
  return writer_->next_index() + held;
}

}  // namespace trainperf
