#include "trainperf/cpython/self_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace trainperf {

SelfMemory SelfMemory::Open(Way best) {
  SelfMemory memory;
  memory.pid_ = getpid();
  const auto works = [&memory](Way way) {
    memory.way_ = way;
    const uint64_t wanted = 0x7472'6169'6e70'6572;
    uint64_t got = 0;
    return memory.Read(reinterpret_cast<uint64_t>(&wanted), &got, sizeof(got)) && got == wanted;
  };
  if (best == Way::kVmRead && works(Way::kVmRead)) return memory;
  if (best != Way::kNone) {
    memory.fd_ = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory.fd_ >= 0 && works(Way::kProcMem)) return memory;
  }
  memory.way_ = Way::kNone;
  return memory;
}

SelfMemory::SelfMemory(SelfMemory&& other) noexcept { *this = std::move(other); }

SelfMemory& SelfMemory::operator=(SelfMemory&& other) noexcept {
  std::swap(way_, other.way_);
  std::swap(pid_, other.pid_);
  std::swap(fd_, other.fd_);
  return *this;
}

SelfMemory::~SelfMemory() {
  if (fd_ >= 0) close(fd_);
}

bool SelfMemory::Read(uint64_t address, void* to, size_t size) const {
  const iovec piece = {reinterpret_cast<void*>(address), size};
  return ReadPieces(&piece, 1, to) == 1;
}

size_t SelfMemory::ReadPieces(const iovec* pieces, size_t count, void* to) const {
  if (count > kMaxPieces) count = kMaxPieces;
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += pieces[i].iov_len;
  if (way_ == Way::kVmRead) {
    const iovec local = {to, total};
    ssize_t got = process_vm_readv(pid_, &local, 1, pieces, count, 0);
    size_t whole = 0;
    for (; whole < count && got >= static_cast<ssize_t>(pieces[whole].iov_len); ++whole) {
      got -= static_cast<ssize_t>(pieces[whole].iov_len);
    }
    return whole;
  }
  if (way_ == Way::kProcMem) {
    char* at = static_cast<char*>(to);
    for (size_t i = 0; i < count; ++i) {
      const size_t size = pieces[i].iov_len;
      const auto from = static_cast<off_t>(reinterpret_cast<uint64_t>(pieces[i].iov_base));
      if (pread(fd_, at, size, from) != static_cast<ssize_t>(size)) return i;
      at += size;
    }
    return count;
  }
  return 0;
}

}  // namespace trainperf
