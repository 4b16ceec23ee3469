#include "trainperf/timeline/segment_list.h"

#include <algorithm>

namespace trainperf {
namespace {

bool SameButTime(const SegmentList::Entry& a, const SegmentList::Entry& b) {
  return a.row == b.row && a.mechanism == b.mechanism && a.thread == b.thread && a.stack == b.stack;
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
