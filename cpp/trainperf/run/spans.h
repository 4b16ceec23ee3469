// Tables span and span_total: the longest of each kind, and the sums of all.

#ifndef TRAINPERF_RUN_SPANS_H_
#define TRAINPERF_RUN_SPANS_H_

#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "trainperf/run/run_part.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

class Spans : public RunPart {
 public:
  explicit Spans(int max_per_kind) : max_per_kind_(max_per_kind < 0 ? 0 : static_cast<size_t>(max_per_kind)) {}
  void Add(const Span& span);

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  struct OfKind {
    std::vector<Span> longest;                         // the position is part of the row's id in the file
    std::set<std::pair<int64_t, uint32_t>> by_length;  // length, position
    std::vector<uint32_t> unwritten;                   // positions; one may occur twice
    int64_t count = 0;
    int64_t ns = 0;
    int64_t steps = 0;
    int64_t last_step = -1;
    int64_t value = 0;
    bool total_unwritten = false;
  };

  size_t max_per_kind_;
  std::array<OfKind, kSpanKindCount> kinds_;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_SPANS_H_
