// Fetches on threads that do not train: a loader that a background thread reads.

#ifndef TRAINPERF_TIMELINE_OTHER_THREADS_H_
#define TRAINPERF_TIMELINE_OTHER_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/event/event.h"
#include "trainperf/timeline/loader_log.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

class OtherThreads {
 public:
  OtherThreads(LoaderLog* loaders, TimelineSink* sink) : loaders_(loaders), sink_(sink) {}
  void Add(const Event& event);

 private:
  static constexpr size_t kMaxThreads = 2048;
  static constexpr size_t kMaxDepth = 8;
  struct OpenFetch {
    Event begin;
    int64_t gil_ns;
    bool first;
  };
  struct Thread {
    std::vector<OpenFetch> open;
    int64_t gil_ns = 0;
    int64_t waited_until_ns = 0;
  };

  LoaderLog* const loaders_;
  TimelineSink* const sink_;
  absl::flat_hash_map<ThreadId, Thread> threads_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_OTHER_THREADS_H_
