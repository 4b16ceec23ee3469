// Reads of the memory of this process, or of a child of ours, that fail instead of crashing, since the kernel makes
// them. Nobody is stopped for it.
//
//   ProcessMemory memory = ProcessMemory::Open();
//   if (!memory.Read(address, &copy, sizeof(copy))) ...   // unmapped by now, or never was
//
// Thread-safe. Reads allocate nothing. Of this process: a forked child opens its own.

#ifndef TRAINPERF_CPYTHON_PROCESS_MEMORY_H_
#define TRAINPERF_CPYTHON_PROCESS_MEMORY_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace trainperf {

class ProcessMemory {
 public:
  enum class Way {
    kVmRead,   // process_vm_readv: 0.4 us a call; old container runtimes forbid it
    kProcMem,  // pread of /proc/PID/mem; closed for processes that are not dumpable
    kNone,
  };

  static ProcessMemory Open(Way best = Way::kVmRead);
  // Of another process. kNone: it has ended, or we may not read it.
  static ProcessMemory OpenOther(pid_t pid, Way best = Way::kVmRead);
  ProcessMemory(ProcessMemory&& other) noexcept;
  ProcessMemory& operator=(ProcessMemory&& other) noexcept;
  ~ProcessMemory();

  Way way() const { return way_; }

  // Where the interpreter's own data lies in the other process: so many bytes after where it lies here. 0 here and in a
  // forked child; another where the process executed its program itself, and the kernel placed it elsewhere.
  uint64_t shift() const { return shift_; }
  void set_shift(uint64_t shift) { shift_ = shift; }

  bool Read(uint64_t address, void* to, size_t size) const;
  // Reads the pieces in order into `to`, one behind the other, and stops at the first that cannot be read whole. How
  // many were. At most kMaxPieces.
  static constexpr size_t kMaxPieces = 200;
  size_t ReadPieces(const iovec* pieces, size_t count, void* to) const;

 private:
  ProcessMemory() = default;

  Way way_ = Way::kNone;
  pid_t pid_ = 0;
  uint64_t shift_ = 0;
  int fd_ = -1;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_PROCESS_MEMORY_H_
