#include "trainperf/collect/loader_workers.h"

#include <algorithm>

#include "trainperf/probe/host.h"

namespace trainperf {
namespace {

constexpr int64_t kSoonNs = 100'000'000;
constexpr int64_t kLatestNs = 1'000'000'000;
constexpr int kMostTries = 8;  // to find a worker's main thread

}  // namespace

void LoaderWorkers::Watch(uint32_t loader, int32_t pid, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  workers_.push_back({loader, pid, now_ns, now_ns, false});
}

void LoaderWorkers::AtWork(uint32_t loader, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Worker& worker : workers_) {
    if (worker.loader != loader || worker.at_work) continue;
    worker.at_work = true;
    worker.since_ns = worker.due_ns = now_ns;
  }
}

std::vector<int32_t> LoaderWorkers::Pids() {
  std::vector<int32_t> pids;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Worker& worker : workers_) pids.push_back(worker.pid);
  return pids;
}

void LoaderWorkers::Read(int64_t now_ns, bool all, RunWriter* writer, CpuRooms* rooms) {
  std::vector<Worker> due, looked_at;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Worker& worker : workers_) {
      if (now_ns < worker.due_ns && !all) continue;
      due.push_back(worker);
      // Soon after its start, and after that of its work, for workers that live for a short epoch; then once a second.
      worker.due_ns = now_ns + std::min(worker.age_ns(now_ns) + kSoonNs, kLatestNs);
    }
    for (size_t i = std::min(workers_.size(), kLooks); i > 0; --i) {
      const Worker& worker = workers_[next_look_++ % workers_.size()];
      if (worker.at_work) looked_at.push_back(worker);
    }
  }
  for (const Worker& worker : due) {
    const ProcessFacts facts = ReadProcess(worker.pid);
    if (facts.alive) {
      if (rooms != nullptr) rooms->Read(now_ns, worker.pid, worker.pid);
      writer->AddWorkerReading({worker.loader, worker.pid, now_ns, facts.cpu_ns, facts.state, worker.at_work});
      continue;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto gone = [&](const Worker& other) { return other.pid == worker.pid; };
    workers_.erase(std::remove_if(workers_.begin(), workers_.end(), gone), workers_.end());
    if (stacks_ != nullptr) stacks_->Remove(worker.pid);
  }
  for (const Worker& worker : looked_at) {
    const ProcessWait wait = ReadProcessWait(worker.pid);
    if (wait.known) writer->AddWorkerLook({worker.loader, worker.pid, wait.syscall, wait.shared});
  }
  if (stacks_ != nullptr) WatchStacks(writer);
}

// Those that are at work by now are looked at from now on.
void LoaderWorkers::WatchStacks(RunWriter* writer) {
  std::vector<Worker> fresh;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Worker& worker : workers_) {
      if (!worker.at_work || worker.tries >= kMostTries) continue;
      ++worker.tries;
      fresh.push_back(worker);
    }
  }
  for (const Worker& worker : fresh) {
    const absl::Status status = stacks_->Add({worker.loader}, worker.pid);
    if (absl::IsNotFound(status)) continue;
    if (!stacks_known_) {
      stacks_known_ = true;
      writer->SetTier("worker_stacks", status.ok() ? "sampled" : "off", std::string(status.message()));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (Worker& known : workers_) {
      if (known.pid == worker.pid) known.tries = kMostTries;
    }
  }
}

}  // namespace trainperf
