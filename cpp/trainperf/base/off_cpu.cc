#include "trainperf/base/off_cpu.h"

#include <dlfcn.h>
#include <time.h>

#include <cstddef>

namespace trainperf {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kSignature = 0x53053053;  // RSEQ_SIG, with which glibc registers
char* ThreadPointer() {
  char* pointer;
  __asm__("mov %%fs:0, %0" : "=r"(pointer));
  return pointer;
}
#elif defined(__aarch64__)
constexpr uint32_t kSignature = 0xd428bc00;
char* ThreadPointer() {
  char* pointer;
  __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
  return pointer;
}
#else
constexpr uint32_t kSignature = 0;
char* ThreadPointer() { return nullptr; }
#endif

// As in linux/rseq.h.
struct alignas(32) RseqCs {
  uint32_t version;
  uint32_t flags;
  uint64_t start_ip;
  uint64_t post_commit_offset;
  uint64_t abort_ip;
};
constexpr ptrdiff_t kRseqCsOffset = 8;  // of rseq_cs in struct rseq
constexpr unsigned kRseqMinSize = 16;

// The kernel checks a descriptor whenever it meets one, and kills a process with a wrong one: the abort address must
// have the signature before it, lie outside of the sequence, and all must be user addresses.
struct Code {
  uint32_t signature = kSignature;
  uint32_t abort = 0;
  uint32_t sequence = 0;
} g_code;

RseqCs g_descriptor;

bool SleepClears(OffCpu* off_cpu) {
  off_cpu->Arm();
  const timespec pause = {0, 100'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  return !off_cpu->StillOn();
}

}  // namespace

uint64_t OffCpu::descriptor_ = 0;

OffCpu OffCpu::Registered() {
  if (kSignature == 0) return OffCpu();
  // By name: a binary that was linked against these would not load with a glibc before 2.35.
  const auto* offset = static_cast<const ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  const auto* size = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
  if (offset == nullptr || size == nullptr || *size < kRseqMinSize) return OffCpu();
  return OffCpu(reinterpret_cast<volatile uint64_t*>(ThreadPointer() + *offset + kRseqCsOffset));
}

bool OffCpu::Supported() {
  static const bool supported = [] {
    g_descriptor.start_ip = reinterpret_cast<uint64_t>(&g_code.sequence);
    g_descriptor.post_commit_offset = 1;
    g_descriptor.abort_ip = reinterpret_cast<uint64_t>(&g_code.abort);
    descriptor_ = reinterpret_cast<uint64_t>(&g_descriptor);
    OffCpu off_cpu = Registered();
    if (!off_cpu.works()) return false;
    for (int i = 0; i < 5; ++i) {
      if (!SleepClears(&off_cpu)) return false;
    }
    return true;
  }();
  return supported;
}

OffCpu OffCpu::ForThisThread() { return Supported() ? Registered() : OffCpu(); }

}  // namespace trainperf
