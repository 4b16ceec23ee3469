// Sorts more records than fit into memory: takes them as sorted runs, keeps up to `max_bytes` of them, merges what is
// beyond into a temporary file, and gives all of them back in order.
//
//   RunSorter<HostRecord, HostRecordOrder> sorter(48 << 20);
//   TRAINPERF_RETURN_IF_ERROR(sorter.Add(std::move(sorted)));
//   auto merge = sorter.Merge();
//   while (const HostRecord* record = merge.Next()) ...
//   merge.status()
//
// Not thread-safe. Records of equal rank come in the order of their runs.

#ifndef TRAINPERF_TRACE_RUN_SORTER_H_
#define TRAINPERF_TRACE_RUN_SORTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainperf/base/status_macros.h"
#include "trainperf/trace/spill_file.h"

namespace trainperf {

template <typename T, typename Order>
class RunSorter {
 public:
  class Merger;

  explicit RunSorter(size_t max_bytes) : max_bytes_(max_bytes) {}

  absl::Status Add(std::vector<T> sorted) {
    if (sorted.empty()) return absl::OkStatus();
    count_ += static_cast<int64_t>(sorted.size());
    bytes_ += sorted.capacity() * sizeof(T);
    runs_.push_back(std::move(sorted));
    return bytes_ > max_bytes_ ? Spill() : absl::OkStatus();
  }
  int64_t count() const { return count_; }
  int64_t spilled_bytes() const { return file_.size(); }

  // Reads what is there now; the sorter must outlive it, and may not get more.
  Merger Merge() { return Merger(this, true); }

  class Merger {
   public:
    // nullptr at the end, or when the temporary file could not be read.
    const T* Next() {
      if (heap_.empty()) return nullptr;
      if (started_) {
        Source& top = sources_[heap_[0]];
        if (++top.next == top.end && !Refill(&top)) {
          heap_[0] = heap_.back();
          heap_.pop_back();
        }
        if (heap_.empty()) return nullptr;
        SiftDown(0);
      }
      started_ = true;
      return sources_[heap_[0]].next;
    }
    const absl::Status& status() const { return status_; }

   private:
    friend class RunSorter;
    struct Source {
      const T* next = nullptr;
      const T* end = nullptr;
      std::vector<T> buffer;  // of a spilled run
      int64_t offset = 0;
      int64_t left = 0;  // records in the file
    };

    Merger(RunSorter* sorter, bool with_spilled) : sorter_(sorter) {
      if (with_spilled) {
        for (const auto& [offset, records] : sorter->spilled_) {
          Source source;
          source.offset = offset;
          source.left = records;
          sources_.push_back(std::move(source));
        }
      }
      for (const std::vector<T>& run : sorter->runs_) {
        Source source;
        source.next = run.data();
        source.end = run.data() + run.size();
        sources_.push_back(std::move(source));
      }
      for (size_t i = 0; i < sources_.size(); ++i) {
        if (sources_[i].next != sources_[i].end || Refill(&sources_[i])) heap_.push_back(static_cast<uint32_t>(i));
      }
      for (size_t i = heap_.size(); i-- > 0;) SiftDown(i);
    }

    bool Refill(Source* source) {
      if (source->left == 0) return false;
      const size_t want = static_cast<size_t>(std::min<int64_t>(source->left, kBuffer / sizeof(T)));
      source->buffer.resize(want);
      const absl::Status read = sorter_->file_.Read(source->offset, source->buffer.data(), want * sizeof(T));
      if (!read.ok()) {
        status_ = read;
        source->left = 0;
        return false;
      }
      source->offset += static_cast<int64_t>(want * sizeof(T));
      source->left -= static_cast<int64_t>(want);
      source->next = source->buffer.data();
      source->end = source->next + want;
      return true;
    }

    bool Before(uint32_t a, uint32_t b) const {
      const Order order;
      if (order(*sources_[a].next, *sources_[b].next)) return true;
      return !order(*sources_[b].next, *sources_[a].next) && a < b;
    }
    void SiftDown(size_t i) {
      const uint32_t moved = heap_.empty() ? 0 : heap_[i];
      for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && Before(heap_[child + 1], heap_[child])) ++child;
        if (!Before(heap_[child], moved)) break;
        heap_[i] = heap_[child];
        i = child;
      }
      if (!heap_.empty()) heap_[i] = moved;
    }

    static constexpr size_t kBuffer = 256 << 10;
    RunSorter* sorter_;
    std::vector<Source> sources_;
    std::vector<uint32_t> heap_;
    bool started_ = false;
    absl::Status status_;
  };

 private:
  absl::Status Spill() {
    TRAINPERF_RETURN_IF_ERROR(file_.Open());
    const int64_t offset = file_.size();
    int64_t records = 0;
    Merger merger(this, false);
    std::vector<T> out;
    out.reserve(Merger::kBuffer / sizeof(T));
    for (const T* record = merger.Next(); record != nullptr; record = merger.Next()) {
      out.push_back(*record);
      ++records;
      if (out.size() < Merger::kBuffer / sizeof(T)) continue;
      TRAINPERF_RETURN_IF_ERROR(file_.Append(out.data(), out.size() * sizeof(T)));
      out.clear();
    }
    TRAINPERF_RETURN_IF_ERROR(file_.Append(out.data(), out.size() * sizeof(T)));
    spilled_.emplace_back(offset, records);
    runs_.clear();
    bytes_ = 0;
    return absl::OkStatus();
  }

  const size_t max_bytes_;
  size_t bytes_ = 0;
  int64_t count_ = 0;
  std::vector<std::vector<T>> runs_;
  std::vector<std::pair<int64_t, int64_t>> spilled_;  // offset, records
  SpillFile file_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_RUN_SORTER_H_
