#include "trainperf/run/sections.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "trainperf/run/words.h"

namespace trainperf {
namespace {

constexpr int kProtectedPerKind =
    32;  // the costliest of each kind never fold: waits are short beside samples, yet matter
constexpr int64_t kRowsPerSection = int64_t{1} << 20;

}  // namespace

DetailSums::Sum& DetailSums::SumOf(const Key& key) {
  const auto [it, is_new] = index_.try_emplace(key, 0);
  if (is_new) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(sums_.size()));
      sums_.emplace_back();
    }
    it->second = free_.back();
    free_.pop_back();
    Sum& sum = sums_[it->second];
    const bool in_file = sum.in_file;
    const bool unwritten = sum.unwritten;
    sum = Sum{};
    sum.key = key;
    sum.used = true;
    sum.in_file = in_file;
    sum.unwritten = unwritten;
    if (!IsFolded(key)) ++exact_;
  }
  Sum& sum = sums_[it->second];
  if (!sum.unwritten) {
    sum.unwritten = true;
    unwritten_.push_back(it->second);
  }
  return sum;
}

void DetailSums::Add(const Detail& d) {
  const bool is_call = d.kind == DetailKind::kCall;  // whose code is told as its state
  const uint8_t state = d.kind == DetailKind::kSample ? static_cast<uint8_t>(d.state)
                        : is_call                     ? static_cast<uint8_t>(d.code)
                                                      : uint8_t{0};
  const int32_t code = is_call ? 0 : d.code;
  Sum& sum =
      SumOf({static_cast<uint8_t>(d.kind), static_cast<uint8_t>(d.phase), state, d.thread, d.stack, code, false});
  sum.ns += d.ns;
  sum.count += d.count;
  if (d.step >= 0 && d.step != sum.last_step) {
    ++sum.steps;
    sum.last_step = d.step;
  }
  if (exact_ > max_keys_) FoldSmallest();
}

void DetailSums::MergeFrom(const DetailSums& later) {
  for (const Sum& from : later.sums_) {
    if (!from.used) continue;
    Sum& sum = SumOf(from.key);
    sum.ns += from.ns;
    sum.count += from.count;
    sum.steps += from.steps - (from.last_step >= 0 && sum.last_step == from.last_step ? 1 : 0);
    sum.last_step = std::max(sum.last_step, from.last_step);
    sum.folded += from.folded;
  }
  if (exact_ > max_keys_) FoldSmallest();
}

// Down to three quarters of the limit, so that it is seldom needed.
void DetailSums::FoldSmallest() {
  std::vector<std::pair<int64_t, uint32_t>> by_cost;
  for (const auto& [key, position] : index_) {
    if (!IsFolded(key)) by_cost.emplace_back(sums_[position].ns, position);
  }
  std::sort(by_cost.begin(), by_cost.end(), std::greater<>());
  const size_t target = std::max<size_t>(max_keys_ * 3 / 4, 1);
  const size_t protected_per_kind = std::min<size_t>(kProtectedPerKind, target / kDetailKindNames.size());
  std::array<size_t, 256> of_kind{};
  std::vector<uint32_t> others;
  size_t kept = 0;
  for (const auto& [ns, position] : by_cost) {
    if (of_kind[std::get<0>(sums_[position].key)]++ < protected_per_kind) {
      ++kept;
    } else {
      others.push_back(position);
    }
  }
  for (const uint32_t position : others) {
    if (kept++ >= target) Fold(position);
  }
}

void DetailSums::Fold(uint32_t position) {
  const Sum small = sums_[position];
  index_.erase(small.key);
  --exact_;
  sums_[position].used = false;
  free_.push_back(position);
  if (!small.unwritten) {
    sums_[position].unwritten = true;
    unwritten_.push_back(position);
  }
  Sum& folded = SumOf({std::get<0>(small.key), std::get<1>(small.key), std::get<2>(small.key), 0, 0, 0, true});
  folded.ns += small.ns;
  folded.count += small.count;
  folded.steps = std::max(folded.steps, small.steps);  // which steps they were is not known any more: a lower bound
  ++folded.folded;
}

absl::Status DetailSums::Write(Database& db, int64_t section) {
  for (const uint32_t position : unwritten_) {
    const Sum& sum = sums_[position];
    const int64_t id = (section + 1) * kRowsPerSection + position;
    if (sum.used) {
      const auto& [kind, phase, state, thread, stack, code, is_folded] = sum.key;
      const char* of_state = "";
      if (static_cast<DetailKind>(kind) == DetailKind::kSample) of_state = WordOf(kSampleStateNames, state);
      if (static_cast<DetailKind>(kind) == DetailKind::kCall) of_state = WordOf(kHostCallNames, state);
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO detail VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id, section,
                                       WordOf(kDetailKindNames, kind), WordOf(kPhaseNames, phase), of_state, thread,
                                       stack, code, sum.ns, sum.count, sum.steps, sum.folded));
    } else if (sum.in_file) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM detail WHERE id = ?", id));
    }
  }
  return absl::OkStatus();
}

void DetailSums::Written() {
  for (const uint32_t position : unwritten_) {
    sums_[position].unwritten = false;
    sums_[position].in_file = sums_[position].used;
  }
  unwritten_.clear();
}

void DetailSums::MarkAllUnwritten() {
  unwritten_.clear();
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].in_file = false;
    sums_[i].unwritten = sums_[i].used;
    if (sums_[i].used) unwritten_.push_back(static_cast<uint32_t>(i));
  }
}

Sections::Sections(int max_sections, int details_per_section)
    : max_sections_(static_cast<size_t>(std::max(max_sections, 2))),
      details_per_section_(details_per_section),
      outside_(details_per_section) {}

void Sections::Add(const StepRecord& step) {
  Section& section = SectionOf(std::max<int64_t>(step.index, 0));
  ++section.steps;
  section.wall_ns += step.end_ns - step.start_ns;
  ForEachPart(step, [&](Phase phase, Mechanism mechanism, int64_t ns) {
    section.ns[static_cast<size_t>(phase)][static_cast<size_t>(mechanism)] += ns;
  });
  section.unwritten = true;
}

void Sections::Add(const Detail& detail) {
  if (detail.step < 0) {
    outside_.Add(detail);
  } else {
    SectionOf(detail.step).sums.Add(detail);
  }
}

Sections::Section& Sections::SectionOf(int64_t step) {
  if (base_ < 0) base_ = step;
  step = std::max<int64_t>(step - base_, 0);
  while (step / width_ >= static_cast<int64_t>(max_sections_)) MergeNeighbours();
  const auto position = static_cast<size_t>(step / width_);
  while (sections_.size() <= position) sections_.emplace_back(details_per_section_);
  return sections_[position];
}

void Sections::MergeNeighbours() {
  size_t merged = 0;
  for (size_t i = 0; i < sections_.size(); i += 2, ++merged) {
    Section section = std::move(sections_[i]);
    if (i + 1 < sections_.size()) {
      const Section& later = sections_[i + 1];
      section.steps += later.steps;
      section.wall_ns += later.wall_ns;
      for (int p = 0; p < kPhaseCount; ++p) {
        for (int m = 0; m < kMechanismCount; ++m) section.ns[p][m] += later.ns[p][m];
      }
      section.sums.MergeFrom(later.sums);
    }
    sections_[merged] = std::move(section);
  }
  sections_.erase(sections_.begin() + static_cast<std::ptrdiff_t>(merged), sections_.end());
  width_ *= 2;
  MarkAllUnwritten();
}

absl::Status Sections::Write(Database& db) {
  if (file_is_stale_) {
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM section"));
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM phase_mechanism"));
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM detail"));
  }
  TRAINPERF_RETURN_IF_ERROR(outside_.Write(db, -1));
  for (size_t i = 0; i < sections_.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    TRAINPERF_RETURN_IF_ERROR(sections_[i].sums.Write(db, id));
    if (!sections_[i].unwritten || sections_[i].steps == 0) continue;  // details come before their step
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO section VALUES (?, ?, ?, ?)", id, base_ + id * width_,
                                     sections_[i].steps, sections_[i].wall_ns));
    for (int p = 0; p < kPhaseCount; ++p) {
      for (int m = 0; m < kMechanismCount; ++m) {
        if (sections_[i].ns[p][m] == 0) continue;
        TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO phase_mechanism VALUES (?, ?, ?, ?)", id, kPhaseNames[p],
                                         kMechanismNames[m], sections_[i].ns[p][m]));
      }
    }
  }
  return absl::OkStatus();
}

void Sections::Written() {
  file_is_stale_ = false;
  outside_.Written();
  for (Section& section : sections_) {
    section.unwritten = false;
    section.sums.Written();
  }
}

void Sections::MarkAllUnwritten() {
  file_is_stale_ = true;
  outside_.MarkAllUnwritten();
  for (Section& section : sections_) {
    section.unwritten = true;
    section.sums.MarkAllUnwritten();
  }
}

}  // namespace trainperf
