// Sums of details by what they are about, bounded: beyond kMaxKeys, new stacks share one sum, and at last everything of
// one kind, phase and state does. Totals are never lost.

#ifndef TRAINPERF_TIMELINE_DETAIL_TABLE_H_
#define TRAINPERF_TIMELINE_DETAIL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/timeline/records.h"
#include "trainperf/timeline/rows.h"

namespace trainperf {

struct DetailKey {
  DetailKind kind;
  Row row;
  SampleState state;
  ThreadId thread;
  StackId stack;
  int32_t code;

  friend bool operator==(const DetailKey& a, const DetailKey& b) {
    return a.stack == b.stack && a.thread == b.thread && a.row == b.row && a.kind == b.kind && a.state == b.state &&
           a.code == b.code;
  }
  template <typename H>
  friend H AbslHashValue(H h, const DetailKey& k) {
    return H::combine(std::move(h), k.kind, k.row, k.state, k.thread, k.stack, k.code);
  }
};

class DetailTable {
 public:
  static constexpr size_t kMaxKeys = 1024;

  struct Entry {
    DetailKey key;
    int64_t ns;
    int64_t count;
  };

  void Add(DetailKey key, int64_t ns, int64_t count);
  void Append(const DetailTable& other);
  // Gives every entry the row that `new_row` says, summing what becomes equal.
  template <typename RowFunction>
  void MoveRows(RowFunction&& new_row) {
    if (entries_.empty()) return;
    scratch_.swap(entries_);
    Clear();
    for (Entry& entry : scratch_) {
      entry.key.row = new_row(entry.key.row);
      Add(entry.key, entry.ns, entry.count);
    }
    scratch_.clear();
  }
  void Clear();
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Entry* Find(const DetailKey& key);

  std::vector<Entry> entries_;
  std::vector<Entry> scratch_;
  absl::flat_hash_map<DetailKey, uint32_t> index_;  // used when there are too many to look through
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_DETAIL_TABLE_H_
