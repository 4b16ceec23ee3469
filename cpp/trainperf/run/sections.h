// Tables section, phase_mechanism and detail: the run in a few dozen stretches of equal length in steps.
//
// A section is one step long at first; whenever there would be too many, neighbours merge. Details are summed per
// section under their key; when a section has too many keys, its smallest fold into one row per kind, phase and state.

#ifndef TRAINPERF_RUN_SECTIONS_H_
#define TRAINPERF_RUN_SECTIONS_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/run/run_part.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

// The details of one section.
class DetailSums {
 public:
  explicit DetailSums(int max_keys) : max_keys_(max_keys < 1 ? 1 : static_cast<size_t>(max_keys)) {}
  void Add(const Detail& detail);
  void MergeFrom(const DetailSums& later);

  absl::Status Write(Database& db, int64_t section);
  void Written();
  void MarkAllUnwritten();
  size_t keys() const { return exact_; }

 private:
  // kind, phase, state, thread, stack, code; folded rows have their own, so that a detail without a stack stays apart.
  using Key = std::tuple<uint8_t, uint8_t, uint8_t, uint32_t, uint32_t, int32_t, bool>;
  struct Sum {
    Key key;
    int64_t ns = 0;
    int64_t count = 0;
    int64_t steps = 0;
    int64_t last_step = -2;
    int64_t folded = 0;
    bool used = false;
    bool unwritten = false;
    bool in_file = false;
  };

  Sum& SumOf(const Key& key);
  static bool IsFolded(const Key& key) { return std::get<6>(key); }
  void FoldSmallest();
  void Fold(uint32_t position);

  size_t max_keys_;
  size_t exact_ = 0;  // keys that are no folded rows
  absl::flat_hash_map<Key, uint32_t> index_;
  std::vector<Sum> sums_;  // the position is part of the row's id in the file, so rows are replaced, not deleted
  std::vector<uint32_t> free_;
  std::vector<uint32_t> unwritten_;
};

class Sections : public RunPart {
 public:
  Sections(int max_sections, int details_per_section);
  void Add(const StepRecord& step);
  void Add(const Detail& detail);

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  struct Section {
    explicit Section(int details) : sums(details) {}
    int64_t steps = 0;
    int64_t wall_ns = 0;
    int64_t ns[kPhaseCount][kMechanismCount] = {};
    bool unwritten = true;
    DetailSums sums;
  };

  Section& SectionOf(int64_t step);
  void MergeNeighbours();

  size_t max_sections_;
  int details_per_section_;
  int64_t base_ = -1;  // the run's first step: a trace may begin at any
  int64_t width_ = 1;  // steps
  std::vector<Section> sections_;
  DetailSums outside_;  // of steps
  bool file_is_stale_ = false;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_SECTIONS_H_
