// What is known of each DataLoader: whether its next fetch is the first of an iterator, and whether training uses it.

#ifndef TRAINPERF_TIMELINE_LOADER_LOG_H_
#define TRAINPERF_TIMELINE_LOADER_LOG_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace trainperf {

class LoaderLog {
 public:
  void Start(uint32_t loader) { At(loader).fetched = false; }
  // True for the first fetch of an iterator.
  bool Fetch(uint32_t loader) {
    State& state = At(loader);
    const bool first = !state.fetched;
    state.fetched = true;
    return first;
  }
  void MarkTraining(uint32_t loader) { At(loader).training = true; }
  bool IsTraining(uint32_t loader) const {
    const auto found = loaders_.find(loader);
    return found != loaders_.end() && found->second.training;
  }

 private:
  static constexpr size_t kMaxLoaders = 4096;
  struct State {
    bool fetched = false;
    bool training = false;
  };

  State& At(uint32_t loader) {
    // A new DataLoader per epoch, for years: forgetting the old ones costs one epoch's "first".
    if (loaders_.size() >= kMaxLoaders && !loaders_.contains(loader)) loaders_.clear();
    return loaders_[loader];
  }

  absl::flat_hash_map<uint32_t, State> loaders_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_LOADER_LOG_H_
