// Why a thread of ours ended by itself: an exception that left it would end the training.
//
//   const ThreadFailure failure = ThreadFailure::Of([&] { Loop(); });   // on the thread: a std::exception ends here
//   if (failure.happened()) writer.AddNote(failure.Note());
//
// A value without memory of its own, since there may be none. Not thread-safe.

#ifndef TRAINPERF_COLLECT_THREAD_FAILURE_H_
#define TRAINPERF_COLLECT_THREAD_FAILURE_H_

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

namespace trainperf {

class ThreadFailure {
 public:
  ThreadFailure() = default;  // none

  // Runs it. Needs no memory for what it throws.
  template <typename Work>
  static ThreadFailure Of(const Work& work) {
    // Makes what exceptions need of a thread before the work uses up the memory: for want of that glibc would abort
    // when one is thrown.
    (void)std::uncaught_exceptions();
    try {
      work();
    } catch (const std::bad_alloc&) {  // ulimit -v, or a machine that does not overcommit
      return ThreadFailure("out of memory");
    } catch (const std::exception& error) {
      return ThreadFailure(error.what());
    }
    return ThreadFailure();
  }

  bool happened() const { return happened_; }
  std::string Note() const {
    return absl::StrCat("trainperf's own thread failed (", why_,
                        "): what came after, and the last steps before it, are not in the run");
  }

 private:
  explicit ThreadFailure(const char* why) : happened_(true) { snprintf(why_, sizeof(why_), "%s", why); }

  bool happened_ = false;
  char why_[128] = "";
};

}  // namespace trainperf

#endif  // TRAINPERF_COLLECT_THREAD_FAILURE_H_
