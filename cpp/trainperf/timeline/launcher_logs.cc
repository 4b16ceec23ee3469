#include "trainperf/timeline/launcher_logs.h"

#include <algorithm>

#include "trainperf/event/names.h"

namespace trainperf {
namespace {

constexpr Row kNoPhase = RowOf(Phase::kOther);

SegmentList::Entry Told(int64_t start_ns, int64_t end_ns, Mechanism mechanism) {
  return {start_ns, end_ns, kNoPhase, mechanism, 0, 0};
}

}  // namespace

LauncherLogs::Log* LauncherLogs::Find(ThreadId thread) {
  const auto found = logs_.find(thread);
  return found == logs_.end() ? nullptr : &found->second;
}

const std::vector<LauncherLogs::Entry>* LauncherLogs::Of(ThreadId thread) const {
  const auto found = logs_.find(thread);
  return found == logs_.end() ? nullptr : &found->second.entries;
}

// A log for one more thread; at the bound in the place of the one that was silent longest, unless it may be asked for.
LauncherLogs::Log* LauncherLogs::Add(ThreadId thread) {
  if (logs_.size() >= kMaxThreads) {
    const auto oldest = std::min_element(logs_.begin(), logs_.end(), [](const auto& a, const auto& b) {
      return a.second.called_ns < b.second.called_ns;
    });
    if (oldest->second.called_ns > dropped_ns_) return nullptr;
    logs_.erase(oldest);
  }
  return &logs_[thread];
}

// What lies within it ended before it, is in the log already, and stays.
void LauncherLogs::Put(Log* log, Entry entry) {
  std::vector<Entry>& entries = log->entries;
  if (entries.size() >= kMaxEntries) entries.erase(entries.begin(), entries.begin() + kMaxEntries / 2);
  size_t first = entries.size();
  while (first > 0 && entries[first - 1].end_ns > entry.start_ns) --first;
  within_.assign(entries.begin() + static_cast<ptrdiff_t>(first), entries.end());
  entries.resize(first);
  const auto until = [&](int64_t end_ns) {
    if (end_ns <= entry.start_ns) return;
    entries.push_back(entry);
    entries.back().end_ns = end_ns;
  };
  const int64_t end_ns = entry.end_ns;
  for (const Entry& inner : within_) {
    until(std::min(inner.start_ns, end_ns));
    entries.push_back(inner);
    entry.start_ns = std::max(entry.start_ns, inner.end_ns);
  }
  until(end_ns);
}

void LauncherLogs::OnCall(const Event& call, int64_t waits_until_ns) {
  const HostCall what = static_cast<HostCall>(call.what);
  Log* log = Find(call.thread);
  if (log == nullptr) {
    const bool launches = what == HostCall::kLaunchKernel || what == HostCall::kLaunchGraph ||
                          what == HostCall::kMemcpy || what == HostCall::kMemset;
    if (!launches || call.thread == 0) return;
    log = Add(call.thread);
    if (log == nullptr) return;
  }
  // Between two calls that follow on each other it makes the next one ready.
  const int64_t after_ns = call.start_ns - log->called_ns;
  if (after_ns > 0 && after_ns <= SegmentList::kLaunchingNs) {
    Put(log, Told(log->called_ns, call.start_ns, Mechanism::kNative));
  }
  const int64_t waited_ns = std::clamp(waits_until_ns, call.start_ns, call.end_ns);
  Put(log, Told(call.start_ns, waited_ns, Mechanism::kGpuWait));
  Put(log, Told(waited_ns, call.end_ns, MechanismOf(what)));
  log->called_ns = std::max(log->called_ns, call.end_ns);
}

void LauncherLogs::OnEvent(const Event& event) {
  Log* const log = Find(event.thread);
  if (log == nullptr) return;
  if (event.kind == EventKind::kGilWait) {
    const Mechanism mechanism = MechanismOf(static_cast<GilWaitKind>(event.what));
    Put(log, {event.start_ns, event.end_ns, kNoPhase, mechanism, event.object, event.stack});
    return;
  }
  const bool gc = event.what == static_cast<uint8_t>(Bracket::kGc);
  if (!gc && event.what != static_cast<uint8_t>(Bracket::kFetch)) return;
  int64_t& open_ns = gc ? log->gc_ns : log->fetch_ns;
  if (event.kind == EventKind::kBegin) {
    if (gc || open_ns == 0) open_ns = event.end_ns;  // collections do not nest: one that is open has lost its end
  } else if (event.kind == EventKind::kEnd && open_ns > 0) {
    Put(log,
        {open_ns, event.end_ns, gc ? kNoPhase : RowOf(Phase::kFetch), gc ? Mechanism::kGc : Mechanism::kUnknown, 0, 0});
    open_ns = 0;
  }
}

void LauncherLogs::OnHold(const Event& hold) {
  Log* const log = Find(hold.object);
  if (log == nullptr) return;
  const int64_t known_ns = log->entries.empty() ? 0 : log->entries.back().end_ns;
  Put(log, Told(std::max(hold.start_ns, known_ns), hold.end_ns, Mechanism::kPython));
}

void LauncherLogs::Drop(int64_t until_ns) {
  dropped_ns_ = std::max(dropped_ns_, until_ns);
  for (auto& [thread, log] : logs_) {
    const auto kept = std::upper_bound(log.entries.begin(), log.entries.end(), until_ns,
                                       [](int64_t ns, const Entry& entry) { return ns < entry.end_ns; });
    if (kept - log.entries.begin() > static_cast<ptrdiff_t>(log.entries.size() / 2)) {
      log.entries.erase(log.entries.begin(), kept);
    }
  }
}

}  // namespace trainperf
