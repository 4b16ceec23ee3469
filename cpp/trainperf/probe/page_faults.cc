#include "trainperf/probe/page_faults.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr size_t kRounds = 5;
constexpr size_t kPagesOfRound = 16;

// The start of a file of /proc, terminated; false when it cannot be read.
template <size_t kSize>
bool ReadFrom(int fd, char (&buffer)[kSize]) {
  const ssize_t size = fd < 0 ? -1 : pread(fd, buffer, kSize - 1, 0);
  buffer[std::max<ssize_t>(0, size)] = '\0';
  return size > 0;
}

}  // namespace

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

PageFaults::PageFaults() : statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {}

PageFaults::~PageFaults() {
  if (statm_ >= 0) close(statm_);
}

void PageFaults::Look() {
  char text[256];
  long long pages;
  // Private writable memory: the heap and mapped blocks, but neither files that are mapped nor shared batches.
  if (!ReadFrom(statm_, text) || sscanf(text, "%*d %*d %*d %*d %*d %lld", &pages) != 1) return;
  const int64_t bytes = pages * PageBytes();
  most_bytes_ = looks_++ == 0 ? bytes : std::max(most_bytes_, bytes);
  returned_bytes_ = std::max(returned_bytes_, most_bytes_ - bytes);
}

FaultReading PageFaults::Read(int32_t native_tid) {
  FaultReading reading;
  if (looks_ > 1) reading.returned_bytes = returned_bytes_;
  looks_ = returned_bytes_ = 0;

  char path[64], text[1024];
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", native_tid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return reading;
  const bool found = ReadFrom(fd, text);
  close(fd);
  const char* name_end = found ? strrchr(text, ')') : nullptr;  // the name may hold spaces and parentheses
  long long faults, system;
  if (name_end != nullptr &&
      sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %lld %*u %*u %*u %*u %lld", &faults, &system) == 2) {
    static const int64_t ns_per_tick = 1'000'000'000 / sysconf(_SC_CLK_TCK);
    reading.faults = faults;
    reading.system_ns = system * ns_per_tick;
  }
  return reading;
}

int64_t MeasurePageFaultNs() {
  const size_t page = static_cast<size_t>(PageBytes()), size = kPagesOfRound * page;
  std::array<int64_t, kRounds> each_ns;
  for (int64_t& ns : each_ns) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    madvise(memory, size, MADV_NOHUGEPAGE);  // fails where the kernel has no huge pages, which is as well
    auto* bytes = static_cast<volatile char*>(memory);
    const int64_t start_ns = ThreadCpuNs();
    for (size_t at = 0; at < size; at += page) bytes[at] = 1;
    ns = (ThreadCpuNs() - start_ns) / static_cast<int64_t>(kPagesOfRound);
    munmap(memory, size);
  }
  std::nth_element(each_ns.begin(), each_ns.begin() + kRounds / 2, each_ns.end());
  return each_ns[kRounds / 2];
}

}  // namespace trainperf
