#include "trainperf/run/loaders.h"

#include <algorithm>
#include <string_view>

#include "trainperf/run/words.h"

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
    const Awaited& awaited = f.awaited;
    const std::pair key(awaited.worker, awaited.reading);
    if (awaited.wait_ns > 0 && (sums.awaited.count(key) != 0 || sums.awaited.size() < kMaxAwaited)) {
      sums.awaited[key].Add(std::min(awaited.wait_ns, wall_ns));
    }
  }
}

void Loaders::Add(const WorkerReading& r) {
  const bool is_gone = r.state == '?';  // its clock could not be read
  auto known = latest_worker_.find({r.loader, r.pid});
  if (known != latest_worker_.end() && !is_gone && r.cpu_ns < workers_[known->second].last_cpu_ns) {
    latest_worker_.erase(known);  // another process has got the pid
    known = latest_worker_.end();
  }
  if (known == latest_worker_.end()) {
    if (is_gone) return;
    if (workers_.size() >= kMaxWorkers) {
      ++refused_readings_;
      return;
    }
    known = latest_worker_.emplace(std::pair(r.loader, r.pid), workers_.size()).first;
    Worker worker;
    worker.loader = r.loader;
    worker.pid = r.pid;
    worker.first_ns = r.at_ns;
    worker.first_cpu_ns = r.cpu_ns;
    workers_.push_back(worker);
  }
  Worker& worker = workers_[known->second];
  if (r.at_work) ++worker.states[r.state];
  ++worker.readings;
  worker.unwritten = true;
  if (is_gone) return;
  worker.last_ns = r.at_ns;
  worker.last_cpu_ns = r.cpu_ns;
  if (r.at_work && worker.at_work_ns == 0) {
    worker.at_work_ns = r.at_ns;
    worker.at_work_cpu_ns = r.cpu_ns;
  }
}

void Loaders::Add(const WorkerLook& look) {
  const auto known = latest_worker_.find({look.loader, look.pid});
  if (known == latest_worker_.end()) return;
  Worker& worker = workers_[known->second];
  const std::pair key(look.syscall, look.shared);
  if (worker.waits.count(key) == 0 && worker.waits.size() >= kMaxWaits) return;
  ++worker.waits[key];
  worker.unwritten = true;
}

void Loaders::Add(const WorkerSample& sample) {
  std::tuple key(sample.of.loader, sample.stack, sample.state, sample.call);
  if (stacks_.size() >= kMaxStacks && stacks_.count(key) == 0) {
    key = {sample.of.loader, 0, sample.state, sample.state == SampleState::kBlocked ? -1 : 0};
    if (stacks_.size() >= kMaxStacks + kMaxLoaders && stacks_.count(key) == 0) return;
  }
  Samples& samples = stacks_[key];
  ++samples.count;
  samples.unwritten = true;
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
    for (const auto& [who, alone] : f.awaited) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO fetch_awaited VALUES (?, ?, ?, ?, ?)", loader, who.first,
                                       who.second, alone.count, alone.wall_ns));
    }
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    if (!w.unwritten) continue;
    const auto id = static_cast<int64_t>(i) + 1;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO worker VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id, w.loader, w.pid,
                                     w.first_ns, w.last_ns, w.first_cpu_ns, w.last_cpu_ns, w.readings, w.at_work_ns,
                                     w.at_work_cpu_ns));
    for (const auto& [state, readings] : w.states) {
      TRAINPERF_RETURN_IF_ERROR(
          db.Run("REPLACE INTO worker_state VALUES (?, ?, ?)", id, std::string_view(&state, 1), readings));
    }
    for (const auto& [wait, looks] : w.waits) {
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO worker_wait VALUES (?, ?, ?, ?)", id, wait.first,
                                       static_cast<int64_t>(wait.second), looks));
    }
  }
  for (const auto& [key, samples] : stacks_) {
    if (!samples.unwritten) continue;
    const auto& [loader, stack, state, call] = key;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO worker_stack VALUES (?, ?, ?, ?, ?)", loader, stack,
                                     std::string_view(WordOf(kSampleStateNames, state)), call, samples.count));
  }
  return absl::OkStatus();
}

void Loaders::Written() {
  for (auto& [key, samples] : stacks_) samples.unwritten = false;
  for (auto& [loader, f] : fetches_) f.unwritten = false;
  for (Worker& worker : workers_) worker.unwritten = false;
}

void Loaders::MarkAllUnwritten() {
  for (auto& [key, samples] : stacks_) samples.unwritten = true;
  for (auto& [loader, f] : fetches_) f.unwritten = true;
  for (Worker& worker : workers_) worker.unwritten = true;
}

}  // namespace trainperf
