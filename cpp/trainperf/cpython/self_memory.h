// Reads of this process' own memory that fail instead of crashing, since the kernel makes them.
//
//   SelfMemory memory = SelfMemory::Open();
//   if (!memory.Read(address, &copy, sizeof(copy))) ...   // unmapped by now, or never was
//
// Thread-safe. Allocates nothing. Of the process that opened it: a forked child opens its own.

#ifndef TRAINPERF_CPYTHON_SELF_MEMORY_H_
#define TRAINPERF_CPYTHON_SELF_MEMORY_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace trainperf {

class SelfMemory {
 public:
  enum class Way {
    kVmRead,   // process_vm_readv: 0.4 us a call; old container runtimes forbid it
    kProcMem,  // pread of /proc/self/mem; closed to processes that are not dumpable
    kNone,
  };

  static SelfMemory Open(Way best = Way::kVmRead);
  SelfMemory(SelfMemory&& other) noexcept;
  SelfMemory& operator=(SelfMemory&& other) noexcept;
  ~SelfMemory();

  Way way() const { return way_; }

  bool Read(uint64_t address, void* to, size_t size) const;
  // Reads the pieces in order into `to`, one behind the other, and stops at the first that cannot be read whole. How
  // many were. At most kMaxPieces.
  static constexpr size_t kMaxPieces = 200;
  size_t ReadPieces(const iovec* pieces, size_t count, void* to) const;

 private:
  SelfMemory() = default;

  Way way_ = Way::kNone;
  pid_t pid_ = 0;
  int fd_ = -1;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_SELF_MEMORY_H_
