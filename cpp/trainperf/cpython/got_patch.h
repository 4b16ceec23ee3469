// Redirects the calls that one loaded ELF object makes to one function, and puts them back.
//
//   auto patch = GotPatch::Install(&_PyRuntime, "pthread_cond_timedwait", reinterpret_cast<void*>(&Hook));
//   patch->original();   // what the slot held: call this to pass on
//   patch->reset();      // the slots that still hold ours get back what they held
//
// Only the table of that object changes; all other callers, ours included, still reach the function itself. A slot that
// another tool has patched over ours stays that tool's, and cannot be patched with the same replacement again until it
// is given back: the tool passes on to our replacement, which would pass on to the tool. Not thread-safe, nor are two
// patches. Threads may be calling through the slots meanwhile.

#ifndef TRAINPERF_CPYTHON_GOT_PATCH_H_
#define TRAINPERF_CPYTHON_GOT_PATCH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainperf {

class GotPatch {
 public:
  // `anchor`: any address within the object. `fallback`: the function itself, for slots that were not bound yet.
  // FailedPrecondition: below another tool's patch the replacement is still called, from an earlier installation.
  static absl::StatusOr<std::unique_ptr<GotPatch>> Install(const void* anchor, const char* symbol, void* replacement,
                                                           void* fallback);
  ~GotPatch();
  GotPatch(const GotPatch&) = delete;
  GotPatch& operator=(const GotPatch&) = delete;

  // What calls should be passed on to: what the slots held before.
  void* original() const { return original_; }
  size_t slots() const { return slots_.size(); }
  // All slots still hold the replacement: no other patcher came after us, and no lazy binding overwrote it.
  bool in_place() const;
  // Writes the replacement again where a lazy binding that was under way during Install has overwritten it.
  void Reassert();

 private:
  struct Slot {
    void** address;
    void* before;
  };
  GotPatch() = default;
  static absl::Status Write(void** slot, void* value);

  std::vector<Slot> slots_;
  void* replacement_ = nullptr;
  void* original_ = nullptr;
  void* fallback_ = nullptr;
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_GOT_PATCH_H_
