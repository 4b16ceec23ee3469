// Call sites of code objects that may be freed while we look: (code object, instruction) -> SiteId.
//
// A code object is known again by what never changes in it, so one that has taken a freed one's address is not mistaken
// for it. So is one of a forked child, which has most of ours, at the same addresses. One thread at a time. Allocates
// nothing after construction.

#ifndef TRAINPERF_CPYTHON_CODE_CACHE_H_
#define TRAINPERF_CPYTHON_CODE_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "trainperf/base/own_heap.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/cpython/process_memory.h"

namespace trainperf {

struct CodePosition {
  uint64_t frame;        // address of the frame; not looked at here
  uint64_t code;         // address of the code object
  uint64_t instruction;  // address of the instruction; 3.10: its index
  int32_t bytecode;      // which of the code's copies of its bytecode it is in; 0 but in free-threaded builds
};

class CodeCache {
 public:
  CodeCache();

  // The sites of `count` positions (at most ProcessMemory::kMaxPieces). False when one of them is not in a code object.
  bool Resolve(const ProcessMemory& memory, const CodePosition* positions, size_t count, SiteId* sites);

 private:
  static constexpr size_t kEntries = 1024;
  static constexpr size_t kLargestCode = 256;
  static constexpr size_t kMemo = 5;
  static constexpr size_t kLargestTable = 64 * 1024;

  // One cache line: between two samples the caches have seen a training step.
  struct alignas(64) Entry {
    uint64_t code;
    uint64_t identity;  // hash of what never changes in it
    SiteId any_site;    // any of this code object's: knows its names
    struct {
      int32_t offset;
      SiteId site;
    } memo[kMemo];
  };
  static_assert(sizeof(Entry) == 64);

  static bool OffsetOf(const ProcessMemory& memory, const CodePosition& position, const char* copy, int64_t* offset);
  bool ResolveOne(const ProcessMemory& memory, const CodePosition& position, const char* copy, SiteId* site);
  size_t ReadWithMore(const ProcessMemory& memory, uint64_t address, size_t least);
  bool IsStillThere(const ProcessMemory& memory, uint64_t code, const char* copy);
  int32_t LineOf(const ProcessMemory& memory, const char* copy, int64_t offset);
  bool ReadText(const ProcessMemory& memory, uint64_t address, bool keep_end, char* to, size_t* size);
  void ForgetIfTableWasReset();

  Pages<Entry> entries_;
  Pages<char> copies_;   // of code objects: too much for the stack of a user's thread
  Pages<char> scratch_;  // a line table or a name
  uint64_t generation_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_CODE_CACHE_H_
