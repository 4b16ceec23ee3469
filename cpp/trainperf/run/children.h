// Tables child and child_stack: the processes that this one started beside DataLoader workers, and where they were.

#ifndef TRAINPERF_RUN_CHILDREN_H_
#define TRAINPERF_RUN_CHILDREN_H_

#include <cstdint>
#include <map>
#include <tuple>

#include "trainperf/event/worker_sample.h"
#include "trainperf/run/run_part.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

// How many children there may be is the caller's to bound.
class Children : public RunPart {
 public:
  static constexpr size_t kMaxStacks = 16384;  // rows of child_stack; beyond, new stacks are summed as stack 0

  void Set(const ChildReading& child);
  void Add(const WorkerSample& sample);

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override;

 private:
  template <typename Value>
  struct Kept {
    Value value{};
    bool unwritten = true;
  };

  std::map<uint32_t, Kept<ChildReading>> children_;
  std::map<std::tuple<uint32_t, StackId, SampleState, int32_t>, Kept<int64_t>> stacks_;  // by child, ..., call
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_CHILDREN_H_
