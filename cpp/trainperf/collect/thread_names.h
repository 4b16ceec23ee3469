// Which of the threads in ThreadTable have got their Python names: who can tell these is asked for them now and then.
//
//   for (int32_t tid : names.Unnamed()) ...          // with the GIL, which the names are read under
//   for (ThreadId id : names.Name(tid)) writer.SetThread(id, tid, "loader", "");

#ifndef TRAINPERF_COLLECT_THREAD_NAMES_H_
#define TRAINPERF_COLLECT_THREAD_NAMES_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "trainperf/base/thread_table.h"

namespace trainperf {

// Thread-safe.
class ThreadNames {
 public:
  // Native ids of threads that were seen, have no name yet, and were not asked for too often.
  std::vector<int32_t> Unnamed();
  // The threads of that native id that have their name from now on, and had none before.
  std::vector<ThreadId> Name(int32_t native_tid);
  bool named(ThreadId id) const;

 private:
  struct Thread {
    int asked = 0;
    bool named = false;
  };

  mutable std::mutex mutex_;
  std::vector<Thread> threads_ = std::vector<Thread>(ThreadTable::kCapacity);  // by ThreadId - 1
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_THREAD_NAMES_H_
