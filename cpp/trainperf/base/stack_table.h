// Python call stacks, interned: a stack is a node of a tree whose edge is a call site.
//
//   StackId id = StackTable::Get().Intern(frames, count);     // frames[0] is the innermost
//   for (StackId i = known + 1; i <= table.size(); ++i) Write(table.node(i), table.site(table.node(i).site));
//
// Writers: the GIL hook (serialised by CPython's GIL mutex, which it holds) and the sampler; a writer that finds the
// table busy gives up (0, counted) rather than waits. Readers take no lock: what size() counts is complete.
// Nothing is allocated after Init(). Full: the stack is cut at the deepest node that was known, counted.

#ifndef TRAINPERF_BASE_STACK_TABLE_H_
#define TRAINPERF_BASE_STACK_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainperf/base/ids.h"

namespace trainperf {

using SiteId = uint32_t;

struct Site {
  std::string_view file;      // as in co_filename
  std::string_view function;  // co_qualname from 3.11, else co_name
  int32_t line;               // the line being executed
};

class StackTable {
 public:
  struct Node {
    StackId parent;  // the caller's; 0 at the outermost frame
    SiteId site;
  };

  static StackTable& Get();  // the one of the live probes; never destroyed
  StackTable() = default;    // one apart: of a trace
  ~StackTable();
  StackTable(const StackTable&) = delete;
  StackTable& operator=(const StackTable&) = delete;
  void Init();   // allocates (about 8 MB of address space, touched as used); idempotent
  void Reset();  // empties; no writer may run

  // Both give 0 when the table is full or busy. Names longer than kMaxName bytes lose their beginning (a file's path)
  // or their end (a function's name).
  static constexpr size_t kMaxName = 1024;
  SiteId InternSite(std::string_view file, std::string_view function, int32_t line);
  StackId Intern(const SiteId* innermost_first, size_t count) { return Intern(innermost_first, count, 0, nullptr); }
  // The same below a stack that is known already, `caller`; `each`, if not null, gets the id of every frame's stack.
  StackId Intern(const SiteId* innermost_first, size_t count, StackId caller, StackId* each);

  uint32_t size() const;        // stacks 1 .. size()
  uint32_t site_count() const;  // sites 1 .. site_count()
  Node node(StackId id) const;
  Site site(SiteId id) const;
  uint64_t refused() const;     // stacks that were cut or not kept: full, or busy
  uint64_t generation() const;  // rises with every Reset(); whoever caches ids must compare it

 private:
  struct Impl;
  std::atomic<Impl*> impl_{nullptr};
};

}  // namespace trainperf

#endif  // TRAINPERF_BASE_STACK_TABLE_H_
