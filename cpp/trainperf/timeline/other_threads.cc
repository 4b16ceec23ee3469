#include "trainperf/timeline/other_threads.h"

#include <algorithm>

#include "trainperf/event/names.h"

namespace trainperf {

void OtherThreads::Add(const Event& event) {
  if (event.kind == EventKind::kGilWait) {
    if (MechanismOf(static_cast<GilWaitKind>(event.what)) != Mechanism::kGilWait) return;
    const auto found = threads_.find(event.thread);
    if (found == threads_.end() || found->second.open.empty()) return;
    Thread& thread = found->second;
    const int64_t start_ns = std::max(event.start_ns, thread.waited_until_ns);  // no instant twice
    if (event.end_ns <= start_ns) return;
    thread.gil_ns += event.end_ns - start_ns;
    thread.waited_until_ns = event.end_ns;
    return;
  }
  if (event.kind != EventKind::kBegin && event.kind != EventKind::kEnd) return;
  const bool begin = event.kind == EventKind::kBegin;
  if (begin && event.what == static_cast<uint8_t>(Bracket::kLoaderStart)) loaders_->Start(event.object);
  if (event.what != static_cast<uint8_t>(Bracket::kFetch)) return;
  if (begin) {
    if (threads_.size() >= kMaxThreads && !threads_.contains(event.thread)) threads_.clear();
    Thread& thread = threads_[event.thread];
    if (thread.open.empty()) thread.gil_ns = 0;
    if (thread.open.size() >= kMaxDepth) thread.open.erase(thread.open.begin());
    thread.open.push_back({event, thread.gil_ns, loaders_->Fetch(event.object)});
    return;
  }
  const auto found = threads_.find(event.thread);
  if (found == threads_.end() || found->second.open.empty()) return;
  const OpenFetch fetch = found->second.open.back();
  found->second.open.pop_back();
  const FetchEnd how = FetchEndOf(event.value);
  const bool behind = how == kFetchedBehind;
  if (how != kFetchedBatch && how != kFetchExhausted && !behind) return;
  FetchRecord record{};
  record.loader = fetch.begin.object;
  record.step = -1;
  record.start_ns = fetch.begin.end_ns;
  record.end_ns = std::max(event.end_ns, record.start_ns);
  record.cpu_ns = std::max<int64_t>(event.cpu_ns - fetch.begin.cpu_ns, 0);
  record.gil_wait_ns = std::min(found->second.gil_ns - fetch.gil_ns, record.end_ns - record.start_ns);
  record.ready = behind ? 0 : static_cast<int32_t>(std::clamp<int64_t>(fetch.begin.value, -1, INT32_MAX));
  record.awaited = AwaitedOf(event.value);
  record.first = fetch.first;
  record.exhausted = how == kFetchExhausted;
  sink_->OnFetch(record);
}

}  // namespace trainperf
