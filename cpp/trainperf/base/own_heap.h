// Keeps what we allocate out of the heap that the user's threads allocate from.
//
//   Pages<Event> slots(1024);                             // an array in pages of its own, zeroed
//   absl::Status status = OnOwnHeap([&] { Open(&db); });  // what is allocated in it is in another arena of malloc's
//
// glibc's malloc puts each tensor of a training on CPUs into some hole of its thread's arena. With what we keep for the
// whole run in between, a step's tensors came to lie at 30 places in the mean, over 200 steps, without a watch at 17;
// with it elsewhere, at 21.

#ifndef TRAINPERF_BASE_OWN_HEAP_H_
#define TRAINPERF_BASE_OWN_HEAP_H_

#include <sys/mman.h>

#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>

#include "absl/status/status.h"

namespace trainperf {

// Memory is taken as pages are touched. std::bad_alloc when there is none.
template <typename T>
class Pages {
 public:
  explicit Pages(size_t count) : bytes_(count * sizeof(T)) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<T*>(pages);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(first_, bytes_); }

  T* get() const { return first_; }
  T& operator[](size_t i) const { return first_[i]; }

 private:
  const size_t bytes_;
  T* first_;
};

// Runs it on a thread of its own, with all signals masked, and waits for its end. What it throws is thrown here.
// ResourceExhausted when no thread could be started: it has not run then.
absl::Status OnOwnHeap(const std::function<void()>& work);

}  // namespace trainperf

#endif  // TRAINPERF_BASE_OWN_HEAP_H_
