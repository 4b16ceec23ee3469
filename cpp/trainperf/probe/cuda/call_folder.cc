#include "trainperf/probe/cuda/call_folder.h"

#include <algorithm>

#include "trainperf/base/thread_table.h"

namespace trainperf {
namespace {

// Told apart from the call that it happens in.
bool Splits(HostCall call) {
  return call == HostCall::kModuleLoad || call == HostCall::kJit || call == HostCall::kQueueFull;
}

struct OuterFirst {  // a type, so that the sort has it inline
  bool operator()(const CudaCallRecord& a, const CudaCallRecord& b) const {
    if (a.tid != b.tid) return a.tid < b.tid;
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
    return a.inner < b.inner;
  }
};

}  // namespace

void CallFolder::Add(const CudaCallRecord& call) { pending_.push_back(call); }

void CallFolder::TakeUpTo(int64_t watermark_ns, std::vector<Event>* events) {
  const auto later = std::partition(pending_.begin(), pending_.end(),
                                    [&](const CudaCallRecord& call) { return call.end_ns > watermark_ns; });
  ready_.assign(later, pending_.end());
  pending_.erase(later, pending_.end());
  if (ready_.empty()) return;

  PutPartsWithinTheirCalls();
  if (!std::is_sorted(ready_.begin(), ready_.end(), OuterFirst())) {
    std::stable_sort(ready_.begin(), ready_.end(), OuterFirst());  // long stretches of it are in order
  }
  const CudaCallRecord* const end = ready_.data() + ready_.size();
  for (const CudaCallRecord* begin = ready_.data(); begin != end;) {
    const CudaCallRecord* next = begin;
    while (next != end && next->tid == begin->tid) ++next;
    if (begin->tid == 0) {
      without_thread_ += next - begin;
    } else {
      FoldThread(begin, next, events);
    }
    begin = next;
  }
  if (told_until_ns_.size() > kManyThreads) {
    absl::erase_if(told_until_ns_, [&](const auto& told) { return told.second < watermark_ns - kForgetNs; });
  }
}

// A part of a call may not say its thread, and its times are by CUPTI's clock, where those of its call may be by ours:
// it is put on the thread and between the ends of its call, which has ended by now, or is still pending.
void CallFolder::PutPartsWithinTheirCalls() {
  absl::flat_hash_map<uint64_t, const CudaCallRecord*> call_of;
  for (const CudaCallRecord& call : ready_) {
    if (call.inner && call.correlation != 0) call_of.emplace(call.correlation, nullptr);
  }
  if (call_of.empty()) return;
  const auto note = [&](const CudaCallRecord& call) {
    if (call.inner) return;
    const auto wanted = call_of.find(call.correlation);
    if (wanted == call_of.end()) return;
    const CudaCallRecord*& outermost = wanted->second;
    if (outermost == nullptr || call.start_ns < outermost->start_ns) outermost = &call;
  };
  for (const CudaCallRecord& call : ready_) note(call);
  for (const CudaCallRecord& call : pending_) note(call);
  for (CudaCallRecord& part : ready_) {
    if (!part.inner || part.correlation == 0) continue;
    const CudaCallRecord* const call = call_of[part.correlation];
    if (call == nullptr) continue;
    if (part.tid == 0) part.tid = call->tid;
    if (part.tid != call->tid || part.end_ns <= call->start_ns || part.start_ns >= call->end_ns) continue;
    part.start_ns = std::max(part.start_ns, call->start_ns);
    part.end_ns = std::min(part.end_ns, call->end_ns);
  }
}

void CallFolder::FoldThread(const CudaCallRecord* begin, const CudaCallRecord* end, std::vector<Event>* events) {
  const ThreadId thread = ThreadTable::Get().FindOrAdd(static_cast<int32_t>(begin->tid), 0);
  int64_t& told_until = told_until_ns_[begin->tid];
  for (const CudaCallRecord* call = begin; call != end;) {
    const CudaCallRecord& outer = *call++;
    int64_t from = std::max(outer.start_ns, told_until);
    const int64_t until = std::max(outer.end_ns, from);
    for (; call != end && call->start_ns < outer.end_ns; ++call) {
      const int64_t inner_end = std::min(call->end_ns, until);
      if (!Splits(call->call) || outer.call == call->call || inner_end <= from) {
        ++folded_;
        continue;
      }
      int64_t inner_start = std::max(call->start_ns, from);
      if (inner_start - from >= kPrefixNs) {
        Emit(outer, from, inner_start, 0, thread, events);
      } else {
        inner_start = from;
      }
      Emit(*call, inner_start, inner_end, 0, thread, events);
      from = inner_end;
    }
    Emit(outer, from, until, outer.inner ? 0 : outer.correlation, thread, events);
    told_until = until;
  }
}

void CallFolder::Emit(const CudaCallRecord& call, int64_t start_ns, int64_t end_ns, uint64_t correlation,
                      ThreadId thread, std::vector<Event>* events) {
  Event event{};
  event.kind = EventKind::kCall;
  event.what = static_cast<uint8_t>(call.call);
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  event.value = static_cast<int64_t>(correlation);
  event.thread = thread;
  if (call.failed) event.flags |= kCallFailed;
  events->push_back(event);
}

}  // namespace trainperf
