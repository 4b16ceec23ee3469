#include "trainperf/timeline/step_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr size_t kMaxSpare = 64;
constexpr size_t kMaxWaiting = 1024;
constexpr int64_t kMaxWaitNs = 2'000'000'000;  // readings come every second, or more often; the first sample sooner
constexpr int64_t kWorthWaitingNs = 100'000;   // the kernel throttles for milliseconds
constexpr int64_t kMaxThrottledNs = int64_t{1} << 61;

// Settles the run delay of a piece: `share` of it was throttling. Returns how much.
int64_t Settle(Piece& piece, double share) {
  int64_t settled = 0;
  for (uint32_t rest = piece.used; rest != 0; rest &= rest - 1) {
    Measures& m = piece.rows[static_cast<size_t>(__builtin_ctz(rest))];
    const int64_t throttled =
        std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(m.delay) * share), 0, m.delay);
    m.throttled += throttled;
    m.descheduled += m.delay - throttled;
    m.delay = 0;
    settled += throttled;
  }
  return settled;
}

}  // namespace

StepWriter::StepWriter(const TimelineOptions& options, TimelineSink* sink, DeviceLane* device)
    : options_(options),
      max_segments_(static_cast<size_t>(std::max(options.max_segments, 1))),
      sink_(sink),
      device_(device) {
  for (int p = 0; p < kPhaseCount; ++p) {
    for (int m = 0; m < kMechanismCount; ++m) {
      causes_[static_cast<size_t>(p)][static_cast<size_t>(m)] =
          CauseOf(static_cast<Phase>(p), static_cast<Mechanism>(m), options.feeds_device);
    }
  }
}

std::unique_ptr<Piece> StepWriter::NewPiece(int64_t start_ns) {
  std::unique_ptr<Piece> piece;
  if (spare_.empty()) {
    piece = std::make_unique<Piece>();
  } else {
    piece = std::move(spare_.back());
    spare_.pop_back();
  }
  piece->Reset(start_ns);
  if (device_->active()) device_->OpenCell(start_ns);
  return piece;
}

void StepWriter::Merged(std::unique_ptr<Piece> piece) {
  if (device_->active()) device_->MergeCell(piece->start_ns);
  Recycle(std::move(piece));
}

void StepWriter::OpenCells(const std::vector<std::unique_ptr<Piece>>* open) {
  for (const Waiting& waiting : waiting_) {
    device_->OpenCell(waiting.piece->start_ns);
    waiting.piece->host_log.Append(waiting.piece->segments, SegmentList::kMaxLog);
  }
  if (!waiting_.empty()) device_->OpenCell(waiting_.back().piece->end_ns());
  if (open == nullptr) return;
  for (const auto& piece : *open) device_->OpenCell(piece->start_ns);
}

void StepWriter::Recycle(std::unique_ptr<Piece> piece) {
  if (spare_.size() >= kMaxSpare) return;
  piece->Reset(0);
  spare_.push_back(std::move(piece));
}

void StepWriter::TakeBack() {
  if (device_->active()) {  // its lane has them, too
    for (Waiting& waiting : waiting_) waiting.step = false;
    for (Waiting& waiting : unsettled_) waiting.step = false;
  } else {
    waiting_.clear();
  }
  waiting_steps_ = next_index_ = 0;
  split_ = SampleSplit();
  awaits_sample_ = asked_for_sample_;
  host_seen_ = false;
  credit_ns_ = 0;
}

void StepWriter::PutStep(std::unique_ptr<Piece> piece) { Put(std::move(piece), true); }
void StepWriter::PutOutside(std::unique_ptr<Piece> piece) { Put(std::move(piece), false); }

void StepWriter::Put(std::unique_ptr<Piece> piece, bool step) {
  if (device_->active()) device_->OpenCell(piece->end_ns());
  waiting_steps_ += step;
  if (waiting_.empty() && !MustWait(*piece)) {
    Release(std::move(piece), step);
    return;
  }
  waiting_.push_back({std::move(piece), step});
  while (waiting_.size() > kMaxWaiting ||
         waiting_.front().piece->end_ns() < waiting_.back().piece->end_ns() - kMaxWaitNs) {
    if (awaits_sample_) {  // it does not come
      Flush();
      return;
    }
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    Release(std::move(first.piece), first.step);
  }
}

bool StepWriter::MustWait(const Piece& piece) const {
  return (host_seen_ && piece.unsettled_delay() >= kWorthWaitingNs) || (awaits_sample_ && piece.has_cpu());
}

void StepWriter::SawSample(SampleState state, int64_t ns) {
  split_.SeeAhead(state, ns);
  if (awaits_sample_ && split_.tells_cpu()) Flush();
}

void StepWriter::Release(std::unique_ptr<Piece> piece, bool step) {
  if (device_->active()) {
    unsettled_.push_back({std::move(piece), step});
    if (unsettled_.size() > kMaxWaiting) device_->SettleAll(unsettled_.front().piece->end_ns());
    WriteSettled();
    return;
  }
  waiting_steps_ -= step;
  Write(*piece, step);
  Recycle(std::move(piece));
}

void StepWriter::WriteSettled() {
  while (!unsettled_.empty() && unsettled_.front().piece->end_ns() <= device_->settled_ns()) {
    Waiting first = std::move(unsettled_.front());
    unsettled_.pop_front();
    waiting_steps_ -= first.step;
    Write(*first.piece, first.step);
    Recycle(std::move(first.piece));
  }
}

void StepWriter::AdvanceTo(int64_t watermark_ns) {
  if (!waiting_.empty() && waiting_.front().piece->end_ns() < watermark_ns - kMaxWaitNs) Flush();
}

void StepWriter::Flush() {
  awaits_sample_ = false;
  WriteWaiting();
}

void StepWriter::WriteWaiting() {
  while (!waiting_.empty()) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    Release(std::move(first.piece), first.step);
  }
}

void StepWriter::HostReading(int64_t at_ns, int64_t throttled_ns, const std::vector<std::unique_ptr<Piece>>& open,
                             int64_t marked_ns) {
  const int64_t now_ns = std::clamp<int64_t>(throttled_ns, 0, kMaxThrottledNs);
  if (!host_seen_) {
    host_seen_ = true;
    reading_ns_ = at_ns;
    throttled_ns_ = now_ns;
    // Before the first reading nothing is known.
    for (const Waiting& waiting : waiting_) Settle(*waiting.piece, 0);
    for (const auto& piece : open) Settle(*piece, 0);
    return;
  }
  const int64_t here_ns = std::max<int64_t>(now_ns - throttled_ns_, 0);
  credit_ns_ = std::min(credit_ns_ + here_ns, kMaxThrottledNs);
  int64_t delay_ns = 0;
  for (const Waiting& waiting : waiting_) delay_ns += waiting.piece->unsettled_delay();
  for (const auto& piece : open) delay_ns += piece->unsettled_delay();
  if (delay_ns > 0) {
    const double share = std::min(1.0, static_cast<double>(credit_ns_) / static_cast<double>(delay_ns));
    for (const Waiting& waiting : waiting_) credit_ns_ -= Settle(*waiting.piece, share);
    for (const auto& piece : open) credit_ns_ -= Settle(*piece, share);
    credit_ns_ = std::max<int64_t>(credit_ns_, 0);
  }
  // The step thread reads its run delay at marks only, so a long stretch may bring it after the reading that explains
  // it. Once a mark has come since the reading before, only this window's time can still be waiting for its match.
  if (marked_ns > reading_ns_) credit_ns_ = std::min(credit_ns_, here_ns);
  reading_ns_ = at_ns;
  throttled_ns_ = now_ns;
  if (!awaits_sample_) WriteWaiting();
}

uint32_t StepWriter::Flags(const Piece& piece) const {
  uint32_t flags = piece.flags;
  if (record_.index == 0 || piece.compiled) flags |= kWarmUp;
  if (piece.loader_start) flags |= kHasLoaderStart;
  const int64_t wall_ns = record_.end_ns - record_.start_ns;
  if (wall_ns <= 0) return flags;
  int64_t cause_ns[kCauseCount] = {};
  for (uint32_t rest = piece.used; rest != 0; rest &= rest - 1) {
    const size_t phase = static_cast<size_t>(__builtin_ctz(rest));
    for (size_t m = 0; m < kMechanismCount; ++m) {
      cause_ns[static_cast<size_t>(causes_[phase][m])] += record_.ns[phase][m];
    }
  }
  const auto share = [&](std::initializer_list<Cause> causes) {
    int64_t sum = 0;
    for (const Cause cause : causes) sum += cause_ns[static_cast<size_t>(cause)];
    return static_cast<double>(sum) / static_cast<double>(wall_ns);
  };
  if (share({Cause::kDataWait}) >= options_.data_starved_share) flags |= kDataStarved;
  if (share({Cause::kGilWait}) >= options_.gil_contended_share) flags |= kGilContended;
  if (share({Cause::kBlockedIo, Cause::kWorldStop, Cause::kObjectLock, Cause::kGc, Cause::kCheckpoint, Cause::kLogging,
             Cause::kDescheduled, Cause::kThrottled}) >= options_.host_stalled_share) {
    flags |= kHostStalled;
  }
  return flags;
}

void StepWriter::Write(Piece& piece, bool step) {
  // Whatever is undecided here stays so: a gap is other, and no validation was confirmed.
  piece.Refute();
  piece.SettleGap(RowOf(Phase::kOther));
  const int64_t index = step ? options_.first_step_index + next_index_++ : -1;
  if (step) {
    split_.AddSamples(piece);
    record_.index = index;
    record_.feeds_device = options_.feeds_device || device_->feeds();
    record_.start_ns = piece.start_ns;
    record_.end_ns = piece.end_ns();
    std::memset(record_.ns, 0, sizeof(record_.ns));
    for (uint32_t rest = piece.used; rest != 0; rest &= rest - 1) {
      const size_t row = static_cast<size_t>(__builtin_ctz(rest));
      split_.Split(static_cast<Phase>(row), piece.rows[row], record_.ns[row]);
    }
    record_.flags = Flags(piece);
    record_.fetches = piece.fetches;
    record_.backwards = piece.backwards;
    record_.optimizer_steps = piece.optimizer_steps;
    record_.compile_ns = piece.compile_ns;
    piece.segments.Compact(max_segments_);
    record_.segments.clear();
    for (const SegmentList::Entry& e : piece.segments.entries()) {
      record_.segments.push_back({e.start_ns, e.end_ns, PhaseOf(e.row), e.mechanism, e.thread, e.stack});
    }
    device_->CloseStep(piece, split_, &record_, &device_details_);
    sink_->OnStep(record_);
    piece.details.Append(device_details_);
    device_details_.Clear();
  }
  for (const DetailTable::Entry& entry : piece.details.entries()) {
    const DetailKey& key = entry.key;
    sink_->OnDetail(
        {key.kind, PhaseOf(key.row), key.state, key.thread, key.stack, key.code, index, entry.ns, entry.count});
  }
  for (Span& span : piece.spans) {
    span.step = index;
    sink_->OnSpan(span);
  }
  for (PendingFetch& fetch : piece.pending_fetches) {
    if (fetch.record.on_step_thread) fetch.record.step = index;
    sink_->OnFetch(fetch.record);
  }
}

}  // namespace trainperf
