#include "trainperf/timeline/early_events.h"

#include <algorithm>

namespace trainperf {

void EarlyEvents::Add(const Event& event) {
  if (threads_.size() >= kMaxThreads && !threads_.contains(event.thread)) return;
  std::deque<Event>& events = threads_[event.thread];
  if (events.size() >= kMaxPerThread) events.pop_front();
  events.push_back(event);
}

void EarlyEvents::AddCall(const Call& call) {
  if (calls_.size() >= kMaxCalls) calls_.pop_front();
  calls_.push_back(call);
}

bool EarlyEvents::HasMarks(ThreadId thread) const {
  const auto found = threads_.find(thread);
  return found != threads_.end() && std::any_of(found->second.begin(), found->second.end(), IsMark);
}

std::vector<Event> EarlyEvents::Take() {
  std::vector<Event> all;
  for (const auto& [thread, events] : threads_) all.insert(all.end(), events.begin(), events.end());
  threads_.clear();
  std::stable_sort(all.begin(), all.end(), [](const Event& a, const Event& b) { return a.end_ns < b.end_ns; });
  return all;
}

}  // namespace trainperf
