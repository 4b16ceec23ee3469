#include "trainperf/run/spans.h"

#include <algorithm>

#include "trainperf/run/words.h"

namespace trainperf {
namespace {

constexpr int64_t kRowsPerKind = int64_t{1} << 24;

}  // namespace

void Spans::Add(const Span& span) {
  const auto index = static_cast<size_t>(span.kind);
  if (index >= kinds_.size()) return;
  OfKind& kind = kinds_[index];
  const int64_t length = span.end_ns - span.start_ns;
  ++kind.count;
  kind.ns += length;
  kind.value += span.value;
  if (span.step >= 0 && span.step != kind.last_step) {
    ++kind.steps;
    kind.last_step = span.step;
  }
  kind.total_unwritten = true;

  uint32_t position = static_cast<uint32_t>(kind.longest.size());
  if (kind.longest.size() < max_per_kind_) {
    kind.longest.push_back(span);
  } else {
    if (max_per_kind_ == 0 || length <= kind.by_length.begin()->first) return;
    position = kind.by_length.begin()->second;
    kind.by_length.erase(kind.by_length.begin());
    kind.longest[position] = span;
  }
  kind.by_length.emplace(length, position);
  kind.unwritten.push_back(position);
  if (kind.unwritten.size() > 2 * max_per_kind_) {  // commits fail: stay bounded
    std::sort(kind.unwritten.begin(), kind.unwritten.end());
    kind.unwritten.erase(std::unique(kind.unwritten.begin(), kind.unwritten.end()), kind.unwritten.end());
  }
}

absl::Status Spans::Write(Database& db) {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const OfKind& kind = kinds_[k];
    for (const uint32_t position : kind.unwritten) {
      const Span& s = kind.longest[position];
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                       static_cast<int64_t>(k) * kRowsPerKind + position, kSpanKindNames[k], s.step,
                                       s.start_ns, s.end_ns, s.cpu_ns, s.object, s.value, s.thread));
    }
    if (kind.total_unwritten) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO span_total VALUES (?, ?, ?, ?, ?)", kSpanKindNames[k], kind.count,
                                       kind.ns, kind.steps, kind.value));
    }
  }
  return absl::OkStatus();
}

void Spans::Written() {
  for (OfKind& kind : kinds_) {
    kind.unwritten.clear();
    kind.total_unwritten = false;
  }
}

void Spans::MarkAllUnwritten() {
  for (OfKind& kind : kinds_) {
    kind.unwritten.resize(kind.longest.size());
    for (uint32_t i = 0; i < kind.longest.size(); ++i) kind.unwritten[i] = i;
    kind.total_unwritten = kind.count > 0;
  }
}

}  // namespace trainperf
