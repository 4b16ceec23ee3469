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
    // Of kUnknown, when known() is: parts of kWhole; what is left was on CPU.
    uint16_t blocked = 0;
    uint16_t delayed = 0;
    uint16_t unmeasured = kWhole;

    bool known() const { return unmeasured < kWhole; }
  };
  static constexpr uint16_t kWhole = 65535;
  static constexpr size_t kMaxLog = 32'768;
  static constexpr int64_t kLaunchingNs = 200'000;  // from one call to the next, of a thread that goes on calling

  // Follows on the one before; an empty one is left out.
  void Add(const Entry& entry, size_t max);
  void Append(const SegmentList& later, size_t max);
  // Without what Measure() told of them.
  void AppendPlain(const SegmentList& later, size_t max);
  // What is kUnknown after `start_ns` was `mechanism`; splits where it must.
  void Claim(int64_t start_ns, Mechanism mechanism);
  // What there is of kUnknown in a stretch that was measured.
  void Measure(int64_t blocked_ns, int64_t delay_ns, int64_t unmeasured_ns);
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
  // Clear() keeps memory for the next use; this gives back what is more than `entries`.
  void Shrink(size_t entries) {
    if (entries_.capacity() > entries) entries_.shrink_to_fit();
    if (lengths_.capacity() > entries) std::vector<int64_t>().swap(lengths_);
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::vector<int64_t> lengths_;  // Compact's own
  size_t settled_ = 0;            // no entry before it is a gap that can still change
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_SEGMENT_LIST_H_
