// A step's own timeline: segments in order, bounded by merging the shortest into their neighbours.

#ifndef TRAINPERF_TIMELINE_SEGMENT_LIST_H_
#define TRAINPERF_TIMELINE_SEGMENT_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainperf/timeline/records.h"
#include "trainperf/timeline/rows.h"

namespace trainperf {

class SegmentList {
 public:
  struct Entry {
    int64_t start_ns;
    int64_t end_ns;
    Row row;
    Mechanism mechanism;
    ThreadId thread;
    StackId stack;
  };

  // Follows on the one before; an empty one is left out.
  void Add(const Entry& entry, size_t max);
  void Append(const SegmentList& later, size_t max);
  // The gap before now has become `row`.
  void SettleGap(Row row);
  template <typename RowFunction>
  void MoveRows(RowFunction&& new_row) {
    for (Entry& entry : entries_) entry.row = new_row(entry.row);
  }
  void Compact(size_t max);
  void Clear() {
    entries_.clear();
    settled_ = 0;
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::vector<int64_t> lengths_;  // Compact's own
  size_t settled_ = 0;            // no entry before it is a gap that can still change
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_SEGMENT_LIST_H_
