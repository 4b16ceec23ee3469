// The brackets that are open on the step thread, and the row that they put its time into. Survives ends without a
// begin, begins without an end and any depth.

#ifndef TRAINPERF_TIMELINE_BRACKET_STACK_H_
#define TRAINPERF_TIMELINE_BRACKET_STACK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/event/event.h"
#include "trainperf/timeline/rows.h"

namespace trainperf {

class BracketStack {
 public:
  static constexpr size_t kMaxDepth = 64;

  struct Frame {
    Bracket bracket;
    Phase phase;  // kUserPhase
    bool first;   // kFetch: the first of its iterator
    uint32_t object;
    int64_t value;
    int64_t start_ns;
    int64_t cpu_ns;
    int64_t gil_ns;  // GIL wait of the thread up to its begin
    int64_t spans;   // checkpoint spans up to its begin
  };

  void Push(const Frame& frame) {
    if (frames_.size() >= kMaxDepth) {  // the outermost has surely lost its end
      --counts_[Index(frames_.front().bracket)];
      frames_.erase(frames_.begin());
    }
    frames_.push_back(frame);
    ++counts_[Index(frame.bracket)];
  }
  Frame Pop() {
    const Frame frame = frames_.back();
    frames_.pop_back();
    --counts_[Index(frame.bracket)];
    return frame;
  }
  // The number of frames to pop so that the innermost such bracket is the last of them; 0: not open.
  size_t DepthOf(Bracket bracket) const {
    if (!open(bracket)) return 0;
    size_t i = frames_.size();
    while (frames_[i - 1].bracket != bracket) --i;
    return frames_.size() - i + 1;
  }
  size_t DepthOf(Bracket bracket, uint32_t object) const {
    if (!open(bracket)) return 0;
    for (size_t i = frames_.size(); i > 0; --i) {
      if (frames_[i - 1].bracket == bracket && frames_[i - 1].object == object) return frames_.size() - i + 1;
    }
    return 0;
  }
  bool open(Bracket bracket) const { return counts_[Index(bracket)] > 0; }
  const std::vector<Frame>& frames() const { return frames_; }

  // Nothing trains: what people bracket as validation is the work itself.
  void KnowNoValidation() { knows_validation_ = false; }

  bool InUserValidation() const {
    if (!knows_validation_ || !open(Bracket::kUserPhase)) return false;
    for (const Frame& frame : frames_) {
      if (frame.bracket == Bracket::kUserPhase && frame.phase == Phase::kValidation) return true;
    }
    return false;
  }

  // The innermost wins; collections and compilations have no phase of their own.
  Row CurrentRow() const {
    Row row = kGapRow;
    for (size_t i = frames_.size(); i > 0; --i) {
      const Bracket bracket = frames_[i - 1].bracket;
      if (bracket == Bracket::kGc || bracket == Bracket::kCompile || IsTransparent(frames_[i - 1])) continue;
      if (bracket != Bracket::kOptimizer) row = RowOfBracket(frames_[i - 1]);
      break;
    }
    return InUserValidation() ? Confirmed(row) : row;
  }

  // What a gap is when no backward ends it; `base`: outside of all brackets.
  Row GapBase(Row base) const {
    for (size_t i = frames_.size(); i > 0; --i) {
      const Bracket bracket = frames_[i - 1].bracket;
      if (bracket == Bracket::kGc || bracket == Bracket::kCompile || bracket == Bracket::kLogging ||
          bracket == Bracket::kCallback || IsTransparent(frames_[i - 1])) {
        continue;
      }
      return RowOf(bracket == Bracket::kOptimizer ? Phase::kOptimizer : Phase::kOther);
    }
    return base;
  }

  bool knows_validation() const { return knows_validation_; }

 private:
  bool IsTransparent(const Frame& frame) const {
    return !knows_validation_ && frame.bracket == Bracket::kUserPhase && frame.phase == Phase::kValidation;
  }
  static size_t Index(Bracket bracket) { return static_cast<size_t>(bracket); }
  static Row RowOfBracket(const Frame& frame) {
    switch (frame.bracket) {
      case Bracket::kFetch:
      case Bracket::kLoaderStart:
        return RowOf(Phase::kFetch);
      case Bracket::kBackward:
        return RowOf(Phase::kBackward);
      case Bracket::kCheckpoint:
        return RowOf(Phase::kCheckpoint);
      case Bracket::kLogging:
        return RowOf(Phase::kLogging);
      case Bracket::kUserPhase:
        return RowOf(frame.phase);
      case Bracket::kCallback:  // between two marks of forward or of the optimizer, but neither
        return RowOf(Phase::kOther);
      default:
        return kGapRow;
    }
  }

  bool knows_validation_ = true;
  std::vector<Frame> frames_;
  std::array<int, kBracketCount> counts_{};
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_BRACKET_STACK_H_
