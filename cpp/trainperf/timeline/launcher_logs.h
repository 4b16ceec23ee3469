// What the threads did that give a device work, other than the step thread: their calls, waits for the GIL, collections
// and fetches. Autograd's is the usual one, a thread that copies batches ahead another.

#ifndef TRAINPERF_TIMELINE_LAUNCHER_LOGS_H_
#define TRAINPERF_TIMELINE_LAUNCHER_LOGS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/event/event.h"
#include "trainperf/timeline/segment_list.h"

namespace trainperf {

class LauncherLogs {
 public:
  using Entry = SegmentList::Entry;
  static constexpr size_t kMaxThreads = 32;
  static constexpr size_t kMaxEntries = 8192;  // of a thread; then the older half goes

  // In order of their ends; not the step thread's. A thread is known from its first work for a device on.
  void OnCall(const Event& call, int64_t waits_until_ns);
  void OnEvent(const Event& event);  // GIL waits, brackets
  void OnHold(const Event& hold);    // a sample: the thread was running Python
  // In order, without overlap; nullptr: the thread is not known.
  const std::vector<Entry>* Of(ThreadId thread) const;
  // Nobody asks for what ended before.
  void Drop(int64_t until_ns);

 private:
  struct Log {
    std::vector<Entry> entries;
    int64_t called_ns = 0;  // the end of its last call
    int64_t gc_ns = 0;      // where the open one began; 0: none
    int64_t fetch_ns = 0;
  };

  Log* Find(ThreadId thread);
  Log* Add(ThreadId thread);  // nullptr: there are too many
  void Put(Log* log, Entry entry);

  absl::flat_hash_map<ThreadId, Log> logs_;
  int64_t dropped_ns_ = 0;
  std::vector<Entry> within_;  // Put's own
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_LAUNCHER_LOGS_H_
