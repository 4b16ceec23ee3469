#include "trainperf/base/own_heap.h"

#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

struct Job {
  const std::function<void()>* work;
  std::exception_ptr thrown;
};

void* Run(void* data) {
  Job* job = static_cast<Job*>(data);
  try {
    (*job->work)();
  } catch (...) {
    job->thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

absl::Status OnOwnHeap(const std::function<void()>& work) {
  Job job{&work, nullptr};
  sigset_t all, before;
  sigfillset(&all);
  pthread_t thread;
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the user's: the thread inherits this mask
  const int error = pthread_create(&thread, nullptr, &Run, &job);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread could be started: ", strerror(error),
                                                     ": raise the limit of processes (ulimit -u) or of memory"));
  }
  pthread_join(thread, nullptr);
  if (job.thrown) std::rethrow_exception(job.thrown);
  return absl::OkStatus();
}

}  // namespace trainperf
