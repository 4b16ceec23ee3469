#include "trainperf/probe/gil_thread_look.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr int64_t kReadMappingsEveryNs = 1'000'000'000;  // at most; with torch loaded a reading takes about 1 ms
constexpr size_t kStackBytes = 1024;  // pthread_cond_wait and its caller have smaller frames than that

int OpenSyscall(int32_t tid) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
  return open(path, O_RDONLY | O_CLOEXEC);
}

}  // namespace

ThreadLook::ThreadLook() : ranges_(kMaxRanges) {}

ThreadLook::~ThreadLook() {
  if (fd_ >= 0) close(fd_);
}

bool ThreadLook::IsFutex(int64_t syscall) { return syscall == SYS_futex; }

bool ThreadLook::Works() {
  const int fd = OpenSyscall(static_cast<int32_t>(syscall(SYS_gettid)));
  if (fd < 0) return false;
  char text[160];
  const bool works = pread(fd, text, sizeof(text), 0) > 0;
  close(fd);
  return works;
}

bool ThreadLook::EndsSoon(const ProcessMemory& memory, const State& state, int64_t within_ns) {
  timespec until;
  if (state.timeout == 0 || !memory.Read(state.timeout, &until, sizeof(until))) return false;
  timespec now = {0, 0};
  if (!state.relative) clock_gettime(state.realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
  // The wait may be over, and something else lie there.
  constexpr int64_t kFarSeconds = 1'000'000, kSecondNs = 1'000'000'000;
  if (until.tv_sec < now.tv_sec - kFarSeconds || until.tv_sec > now.tv_sec + kFarSeconds) return false;
  if (until.tv_nsec < 0 || until.tv_nsec >= kSecondNs) return false;
  return (until.tv_sec - now.tv_sec) * kSecondNs + until.tv_nsec - now.tv_nsec <= within_ns;
}

void ThreadLook::Follow(int32_t native_tid) {
  if (native_tid == tid_) return;
  if (fd_ >= 0) close(fd_);
  tid_ = native_tid;
  fd_ = native_tid > 0 ? OpenSyscall(native_tid) : -1;
}

ThreadLook::State ThreadLook::Read() const {
  State state{Kind::kUnreadable, -1, 0, 0, 0, 0, false, false};
  char text[256];
  const ssize_t size = fd_ >= 0 ? pread(fd_, text, sizeof(text) - 1, 0) : -1;
  if (size <= 0) return state;  // it has ended, or we may not look
  text[size] = '\0';
  if (text[0] == 'r') {
    state.kind = Kind::kRunning;
    return state;
  }
  // "nr arg0 .. arg5 sp pc", or "-1 sp pc"
  char* at = text;
  state.syscall = std::strtoll(at, &at, 10);
  if (at == text) return state;
  uint64_t fields[8] = {};
  int count = 0;
  for (; count < 8 && *at == ' '; ++count) fields[count] = std::strtoull(at + 1, &at, 16);
  if (count < 2) return state;
  state.kind = Kind::kAsleep;
  state.first_argument = count == 8 ? fields[0] : 0;
  state.stack_pointer = fields[count - 2];
  state.pc = fields[count - 1];
  if (count == 8 && IsFutex(state.syscall)) {
    state.timeout = fields[3];
    state.relative = (fields[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
    state.realtime = (fields[1] & FUTEX_CLOCK_REALTIME) != 0;
  }
  return state;
}

const ThreadLook::Range* ThreadLook::Find(uint64_t address) const {
  const Range* end = ranges_.get() + range_count_;
  const Range* after = std::upper_bound(static_cast<const Range*>(ranges_.get()), end, address,
                                        [](uint64_t value, const Range& range) { return value < range.begin; });
  if (after == ranges_.get() || address >= (after - 1)->end) return nullptr;
  return after - 1;
}

void ThreadLook::AddMapping(const char* line) {
  Range range{};
  char flags[8] = "";
  int path_at = 0;
  if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %n", &range.begin, &range.end, flags, &path_at) < 3) return;
  if (flags[2] != 'x' || range_count_ == kMaxRanges) return;
  const char* slash = path_at > 0 ? std::strrchr(line + path_at, '/') : nullptr;
  const char* name = slash != nullptr ? slash + 1 : "";
  const auto starts = [name](const char* with) { return std::strncmp(name, with, std::strlen(with)) == 0; };
  if (starts("libgomp")) {
    range.owner = Owner::kGomp;
  } else if (starts("libiomp") || starts("libomp")) {
    range.owner = Owner::kOpenMp;
  } else if (starts("libc.") || starts("libc-") || starts("libpthread") || starts("ld-")) {
    range.owner = Owner::kLibc;
  }
  ranges_[range_count_++] = range;
}

void ThreadLook::ReadMappings(int64_t now_ns) {
  mappings_read_ns_ = now_ns;
  range_count_ = 0;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[8192];
  size_t kept = 0;
  for (ssize_t got; (got = read(fd, buffer + kept, sizeof(buffer) - 1 - kept)) > 0;) {
    const size_t size = kept + static_cast<size_t>(got);
    buffer[size] = '\0';
    char* line = buffer;
    for (char* end; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      AddMapping(line);
    }
    kept = size - static_cast<size_t>(line - buffer);
    if (kept == sizeof(buffer) - 1) kept = 0;  // a path longer than any: not one of ours
    std::memmove(buffer, line, kept);
  }
  close(fd);
}

// GCC's runtime makes the system call itself where it has a header for that; elsewhere by libc's syscall(). So an
// address in it that a wait in libc finds on its stack is what an earlier call has left there.
#if defined(__x86_64__) || defined(__i386__)
constexpr bool kGompWaitsInLibc = false;
#else
constexpr bool kGompWaitsInLibc = true;
#endif

bool ThreadLook::InOpenMp(const ProcessMemory& memory, const State& state, int64_t now_ns) {
  if (state.kind != Kind::kAsleep || !IsFutex(state.syscall)) return false;
  const Range* at = Find(state.pc);
  if (at == nullptr && (mappings_read_ns_ == 0 || now_ns - mappings_read_ns_ >= kReadMappingsEveryNs)) {
    ReadMappings(now_ns);
    at = Find(state.pc);
  }
  if (at == nullptr) return false;
  if (at->owner != Owner::kLibc) return at->owner != Owner::kOther;
  // The first word of the stack that leads to code outside of libc is, in all likelihood, its caller's.
  uint64_t words[kStackBytes / sizeof(uint64_t)];
  size_t count = std::size(words);
  while (count > 16 && !memory.Read(state.stack_pointer, words, count * sizeof(uint64_t))) count /= 2;
  if (count <= 16) return false;
  for (size_t i = 0; i < count; ++i) {
    const Range* range = Find(words[i]);
    if (range == nullptr || range->owner == Owner::kLibc) continue;
    return range->owner == Owner::kOpenMp || (range->owner == Owner::kGomp && kGompWaitsInLibc);
  }
  return false;
}

}  // namespace trainperf
