#include "trainperf/probe/worker_stacks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

// The first looks resolve new code, and a short epoch is to have some: what they may take beyond their share.
constexpr int64_t kCreditNs = 5'000'000;
constexpr size_t kAtOnce = 2;  // a second worker costs less than the first, which finds the caches cold

}  // namespace

WorkerStacks::Watched::~Watched() {
  if (syscall_fd >= 0) close(syscall_fd);
}

void WorkerStacks::Begin(const GilView* gil) {
  if (gil != nullptr) gil_ = std::make_unique<GilView>(*gil);
  begun_.store(true, std::memory_order_release);
}

absl::Status WorkerStacks::Add(WorkerOf of, int32_t pid) {
  if (!begun_.load(std::memory_order_acquire)) return absl::UnimplementedError("no stacks can be read here");
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto is_child = [](const std::unique_ptr<Watched>& other) { return other->of.child != 0; };
    const auto children = std::count_if(workers_.begin(), workers_.end(), is_child);
    if (workers_.size() >= kMost || (of.child != 0 && children >= static_cast<ptrdiff_t>(kChildren))) {
      return absl::OkStatus();
    }
  }
  absl::StatusOr<std::unique_ptr<ChildStack>> stack = ChildStack::Open(pid, gil_.get());
  if (!stack.ok()) return stack.status();
  const int fd = open(absl::StrCat("/proc/", pid, "/syscall").c_str(), O_RDONLY | O_CLOEXEC);
  char text[16];
  if (fd < 0 || pread(fd, text, sizeof(text), 0) <= 0) {
    if (fd >= 0) close(fd);
    return absl::PermissionDeniedError("/proc/PID/syscall cannot be read here");
  }
  std::unique_ptr<Watched> worker(new Watched{of, pid, fd, *std::move(stack)});
  std::lock_guard<std::mutex> lock(mutex_);
  workers_.push_back(std::move(worker));
  return absl::OkStatus();
}

void WorkerStacks::Remove(int32_t pid) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto gone = [pid](const std::unique_ptr<Watched>& worker) { return worker->pid == pid; };
  workers_.erase(std::remove_if(workers_.begin(), workers_.end(), gone), workers_.end());
}

int64_t WorkerStacks::Look(int64_t now_ns) {
  if (first_ns_ != 0 && static_cast<double>(now_ns - first_ns_) * kShare + kCreditNs < static_cast<double>(spent_ns_)) {
    return 0;
  }
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || workers_.empty()) return 0;
  if (first_ns_ == 0) first_ns_ = now_ns;
  const int64_t before_ns = ThreadCpuNs();
  for (size_t i = 0; i < std::min(kAtOnce, workers_.size()); ++i) {
    WorkerSample sample{};
    if (Read(workers_[next_++ % workers_.size()].get(), &sample)) ring_.TryPush(sample);
  }
  const int64_t took_ns = ThreadCpuNs() - before_ns;
  spent_ns_ += took_ns;
  return took_ns;
}

// False: it has ended.
bool WorkerStacks::Read(Watched* worker, WorkerSample* sample) {
  char text[256];  // "running", "-1 sp pc", or "nr arg0 .. arg5 sp pc"
  const ssize_t size = pread(worker->syscall_fd, text, sizeof(text) - 1, 0);
  if (size <= 0) return false;
  text[size] = '\0';
  std::optional<bool> holds_gil;
  *sample = {worker->of, worker->stack->Read(&codes_, &holds_gil), SampleState::kUnknown, 0};
  if (std::strncmp(text, "running", 7) == 0) {
    if (holds_gil.has_value()) sample->state = *holds_gil ? SampleState::kPython : SampleState::kNative;
    return true;
  }
  int call = -1;
  unsigned long long address = 0;
  if (std::sscanf(text, "%d %llx", &call, &address) < 1) return true;
  sample->state = SampleState::kBlocked;
  sample->call = call;
  const bool waits_for_gil =
      call == SYS_futex && gil_ != nullptr && gil_->IsWaitAddress(address - worker->stack->shift());
  if (waits_for_gil) sample->state = SampleState::kGilWait;
  return true;
}

}  // namespace trainperf
