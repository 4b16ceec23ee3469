// Tells, without a system call, whether the calling thread left its CPU since it last asked.
//
//   OffCpu off_cpu = OffCpu::ForThisThread();   // works() is false where the kernel or the C library has no rseq
//   off_cpu.Arm();
//   ...
//   if (!off_cpu.StillOn()) ...                 // slept, was preempted or got a signal since Arm(): read the clocks
//
// Why: on a thread that has just run torch's kernels, a system call costs 5 to 9 us (cold caches), not the 0.2 us of a
// benchmark's loop; ten marks a step then cost more than the budget. How: rseq(2). A thread's rseq area, which glibc
// registers since 2.35, holds a pointer that user space may set to the descriptor of a restartable sequence, and that
// the kernel sets to NULL when it preempts the thread, or delivers a signal, outside of that sequence. Ours is a
// descriptor of a sequence that is never run. Others in the process may use the pointer: they set it anew each time, so
// they only make us read the clocks. A kernel that keeps the pointer over a sleep fails the check in Supported().
//
// ForThisThread(), Arm(), StillOn(): the thread itself.

#ifndef TRAINPERF_BASE_OFF_CPU_H_
#define TRAINPERF_BASE_OFF_CPU_H_

#include <cstdint>

namespace trainperf {

class OffCpu {
 public:
  OffCpu() = default;
  static OffCpu ForThisThread();
  // Whether it works in this process: tried once, by a sleep of 0.1 ms.
  static bool Supported();

  bool works() const { return pointer_ != nullptr; }

  void Arm() {
    if (pointer_ != nullptr) *pointer_ = Descriptor();
  }
  bool StillOn() const { return pointer_ != nullptr && *pointer_ == Descriptor(); }

 private:
  explicit OffCpu(volatile uint64_t* pointer) : pointer_(pointer) {}
  static uint64_t Descriptor() { return descriptor_; }
  static OffCpu Registered();  // without asking Supported()

  static uint64_t
      descriptor_;  // address of a static rseq_cs, which is never unmapped: extension modules are not unloaded
  volatile uint64_t* pointer_ = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_BASE_OFF_CPU_H_
