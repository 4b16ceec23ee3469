#include "trainperf/collect/thread_names.h"

namespace trainperf {
namespace {

constexpr int kMaxQuestions = 20;

int32_t NativeTid(ThreadId id) { return ThreadTable::Get().info(id).native_tid.load(std::memory_order_relaxed); }

}  // namespace

std::vector<int32_t> ThreadNames::Unnamed() {
  std::vector<int32_t> tids;
  std::lock_guard<std::mutex> lock(mutex_);
  for (ThreadId id = 1; id <= ThreadTable::Get().size(); ++id) {
    Thread& thread = threads_[id - 1];
    const int32_t tid = NativeTid(id);
    if (thread.named || thread.asked >= kMaxQuestions || tid == 0) continue;
    ++thread.asked;
    tids.push_back(tid);
  }
  return tids;
}

std::vector<ThreadId> ThreadNames::Name(int32_t native_tid) {
  std::vector<ThreadId> ids;
  std::lock_guard<std::mutex> lock(mutex_);
  for (ThreadId id = 1; id <= ThreadTable::Get().size(); ++id) {
    if (NativeTid(id) != native_tid || threads_[id - 1].named) continue;
    threads_[id - 1].named = true;
    ids.push_back(id);
  }
  return ids;
}

bool ThreadNames::named(ThreadId id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return threads_[id - 1].named;
}

}  // namespace trainperf
