#include "trainperf/run/loaders.h"

#include <algorithm>
#include <string_view>

namespace trainperf {

void Loaders::Add(const FetchRecord& f) {
  const bool is_known = fetches_.count(f.loader) != 0 || fetches_.size() < kMaxLoaders;
  Fetches& sums = fetches_[is_known ? f.loader : 0];
  const int64_t wall_ns = f.end_ns - f.start_ns;
  sums.unwritten = true;
  if (f.exhausted) {
    sums.exhausted.Add(wall_ns);
  } else if (f.validation) {
    sums.validation.Add(wall_ns);
  } else if (!f.on_step_thread) {
    sums.off_thread.Add(wall_ns);
  } else if (f.first) {
    sums.first.Add(wall_ns);
  } else {
    sums.steady.Add(wall_ns);
    sums.cpu_ns += f.cpu_ns;
    sums.gil_wait_ns += f.gil_wait_ns;
    sums.max_ns = std::max(sums.max_ns, wall_ns);
    sums.ready[static_cast<size_t>(std::clamp(f.ready, -1, kMaxReady) + 1)].Add(wall_ns);
    Worker* const worker = f.awaited != 0 ? LatestWorker(f.loader, f.awaited) : nullptr;
    if (worker != nullptr) {
      worker->awaited.Add(wall_ns);
      if (f.others_at_their_end) worker->last.Add(wall_ns);
      worker->unwritten = true;
    }
  }
}

Loaders::Worker* Loaders::LatestWorker(uint32_t loader, int32_t pid) {
  const auto known = latest_worker_.find({loader, pid});
  if (known != latest_worker_.end()) return &workers_[known->second];
  if (workers_.size() >= kMaxWorkers) return nullptr;
  latest_worker_.emplace(std::pair(loader, pid), workers_.size());
  Worker& worker = workers_.emplace_back();
  worker.loader = loader;
  worker.pid = pid;
  return &worker;
}

void Loaders::Add(const WorkerReading& r) {
  const bool is_gone = r.state == '?';  // its clock could not be read
  const auto known = latest_worker_.find({r.loader, r.pid});
  if (known == latest_worker_.end() && is_gone) return;
  if (known != latest_worker_.end() && !is_gone && r.cpu_ns < workers_[known->second].last_cpu_ns) {
    latest_worker_.erase(known);  // another process has got the pid
  }
  Worker* const worker = LatestWorker(r.loader, r.pid);
  if (worker == nullptr) {
    ++refused_readings_;
    return;
  }
  const bool is_first = worker->readings == 0;
  ++worker->states[r.state];
  ++worker->readings;
  worker->unwritten = true;
  if (is_gone) return;
  if (is_first) {
    worker->first_ns = r.at_ns;
    worker->first_cpu_ns = r.cpu_ns;
  }
  worker->last_ns = r.at_ns;
  worker->last_cpu_ns = r.cpu_ns;
}

absl::Status Loaders::Write(Database& db) {
  for (const auto& [loader, f] : fetches_) {
    if (!f.unwritten) continue;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO fetch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", loader,
                                     f.steady.count, f.steady.wall_ns, f.cpu_ns, f.gil_wait_ns, f.max_ns, f.first.count,
                                     f.first.wall_ns, f.off_thread.count, f.off_thread.wall_ns, f.validation.count,
                                     f.validation.wall_ns, f.exhausted.count, f.exhausted.wall_ns));
    for (int i = 0; i < kMaxReady + 2; ++i) {
      const CountAndTime& ready = f.ready[static_cast<size_t>(i)];
      if (ready.count == 0) continue;
      TRAINPERF_RETURN_IF_ERROR(
          db.Run("REPLACE INTO fetch_ready VALUES (?, ?, ?, ?)", loader, i - 1, ready.count, ready.wall_ns));
    }
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    if (!w.unwritten) continue;
    const auto id = static_cast<int64_t>(i) + 1;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO worker VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id, w.loader,
                                     w.pid, w.first_ns, w.last_ns, w.first_cpu_ns, w.last_cpu_ns, w.readings,
                                     w.awaited.count, w.awaited.wall_ns, w.last.count, w.last.wall_ns));
    for (const auto& [state, readings] : w.states) {
      TRAINPERF_RETURN_IF_ERROR(
          db.Run("REPLACE INTO worker_state VALUES (?, ?, ?)", id, std::string_view(&state, 1), readings));
    }
  }
  return absl::OkStatus();
}

void Loaders::Written() {
  for (auto& [loader, f] : fetches_) f.unwritten = false;
  for (Worker& worker : workers_) worker.unwritten = false;
}

void Loaders::MarkAllUnwritten() {
  for (auto& [loader, f] : fetches_) f.unwritten = true;
  for (Worker& worker : workers_) worker.unwritten = true;
}

}  // namespace trainperf
