#include "trainperf/timeline/segment_list.h"

#include <algorithm>

namespace trainperf {
namespace {

bool SameButTime(const SegmentList::Entry& a, const SegmentList::Entry& b) {
  return a.row == b.row && a.mechanism == b.mechanism && a.thread == b.thread && a.stack == b.stack &&
         a.blocked == b.blocked && a.delayed == b.delayed && a.unmeasured == b.unmeasured;
}

}  // namespace

void SegmentList::Add(const Entry& entry, size_t max) {
  if (entry.end_ns <= entry.start_ns) return;
  if (!entries_.empty() && SameButTime(entries_.back(), entry)) {
    entries_.back().end_ns = entry.end_ns;
    return;
  }
  entries_.push_back(entry);
  if (entries_.size() >= 2 * max) Compact(max);
}

void SegmentList::Append(const SegmentList& later, size_t max) {
  for (const Entry& entry : later.entries_) Add(entry, max);
}

void SegmentList::AppendPlain(const SegmentList& later, size_t max) {
  for (const Entry& e : later.entries_) Add({e.start_ns, e.end_ns, e.row, e.mechanism, e.thread, e.stack}, max);
}

void SegmentList::Claim(int64_t start_ns, Mechanism mechanism) {
  for (size_t i = entries_.size(); i-- > 0 && entries_[i].end_ns > start_ns;) {
    if (entries_[i].mechanism != Mechanism::kUnknown) continue;
    if (entries_[i].start_ns < start_ns) {
      Entry before = entries_[i];
      before.end_ns = start_ns;
      entries_[i].start_ns = start_ns;
      entries_[i].mechanism = mechanism;
      entries_.insert(entries_.begin() + static_cast<ptrdiff_t>(i), before);
      return;
    }
    entries_[i].mechanism = mechanism;
  }
}

// A thread that calls again and again is on CPU in between: what it was off CPU lies in the longer stretches.
void SegmentList::Measure(int64_t blocked_ns, int64_t delay_ns, int64_t unmeasured_ns) {
  int64_t brief_ns = 0;
  int64_t long_ns = 0;
  const bool calls = entries_.size() > 1;
  for (const Entry& e : entries_) {
    if (e.mechanism != Mechanism::kUnknown) continue;
    const int64_t ns = e.end_ns - e.start_ns;
    (calls && ns <= kLaunchingNs ? brief_ns : long_ns) += ns;
  }
  const int64_t off_ns = blocked_ns + delay_ns;
  const auto share = [](int64_t part, int64_t whole) -> double {
    return whole <= 0 ? 0.0 : std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0);
  };
  const double unmeasured = share(unmeasured_ns, brief_ns + long_ns);
  const double off_long = share(off_ns, long_ns);
  const double off_brief = share(off_ns - long_ns, brief_ns);
  const double blocked = share(blocked_ns, off_ns);
  for (Entry& e : entries_) {
    if (e.mechanism != Mechanism::kUnknown) continue;
    const bool brief = calls && e.end_ns - e.start_ns <= kLaunchingNs;
    const double off = (brief ? off_brief : off_long) * (1 - unmeasured);
    e.unmeasured = static_cast<uint16_t>(unmeasured * kWhole);
    e.blocked = static_cast<uint16_t>(off * blocked * kWhole);
    e.delayed = static_cast<uint16_t>(off * (1 - blocked) * kWhole);
  }
}

void SegmentList::SettleGap(Row row) {
  for (size_t i = settled_; i < entries_.size(); ++i) {
    if (IsGap(entries_[i].row)) entries_[i].row = IsTentative(entries_[i].row) ? Tentative(row) : row;
  }
  settled_ = entries_.size();
}

void SegmentList::Compact(size_t max) {
  if (entries_.size() <= max) return;
  lengths_.clear();
  for (const Entry& e : entries_) lengths_.push_back(e.end_ns - e.start_ns);
  size_t surplus = entries_.size() - max;
  std::nth_element(lengths_.begin(), lengths_.begin() + static_cast<ptrdiff_t>(surplus - 1), lengths_.end());
  const int64_t shortest = lengths_[surplus - 1];
  size_t kept = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry entry = entries_[i];
    const bool merge = kept > 0 && (SameButTime(entries_[kept - 1], entry) ||
                                    (surplus > 0 && entry.end_ns - entry.start_ns <= shortest));
    if (!merge) {
      entries_[kept++] = entry;
      continue;
    }
    Entry& into = entries_[kept - 1];
    const int64_t start_ns = into.start_ns;
    if (entry.end_ns - entry.start_ns > into.end_ns - into.start_ns) into = entry;
    into.start_ns = start_ns;
    into.end_ns = entry.end_ns;
    if (surplus > 0) --surplus;
  }
  while (kept > max && kept > 1) {  // the first was among the shortest
    entries_[kept - 2].end_ns = entries_[kept - 1].end_ns;
    --kept;
  }
  entries_.resize(kept);
  settled_ = 0;
}

}  // namespace trainperf
