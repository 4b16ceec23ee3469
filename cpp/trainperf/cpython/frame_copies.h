// Two copies of the memory that the frames of one stack lie in, made right after one another.
//
//   FrameCopies copies;
//   copies.Find(memory, address) ...       // at each frame of the stack, from one to the next: what is to be copied
//   copies.ReadTwice(memory, others);      // all of it, the others, and all of it again, in one system call
//   first = copies.First(address), copies.Second(first)
//
// What is the same in both was so when the others were read. One thread at a time. Allocates nothing after
// construction.

#ifndef TRAINPERF_CPYTHON_FRAME_COPIES_H_
#define TRAINPERF_CPYTHON_FRAME_COPIES_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "trainperf/base/own_heap.h"
#include "trainperf/cpython/process_memory.h"

namespace trainperf {

class FrameCopies {
 public:
  using Others = std::array<iovec, 3>;

  void Clear();
  size_t pieces() const { return 2 * count_ + std::tuple_size_v<Others>; }  // that a read consists of
  bool empty() const { return count_ == 0; }

  // A copy of the frame at `address`, which lasts until the next one is found; nullptr when it cannot be read, or there
  // is no room for more. `alone`: no other frame is near.
  const char* Find(const ProcessMemory& memory, uint64_t address, bool alone = false);

  // At most kOthersSize bytes. False when some of it cannot be read.
  bool ReadTwice(const ProcessMemory& memory, const Others& others);
  const char* others() const { return pages_.get() + size_; }  // one behind the other

  // The frame at `address` in the first copy; nullptr where it was not found.
  const char* First(uint64_t address) const;
  // The same frame in the second copy.
  const char* Second(const char* first) const { return first + size_ + others_size_; }

 private:
  struct Piece {
    uint64_t begin;
    uint64_t end;
    size_t at;  // in the copies
  };
  static constexpr uint64_t kPage = 4096;  // the smallest there is: a read within it crosses no mapping
  static constexpr uint64_t kReach = 2048;
  static constexpr size_t kOthersSize = 512;
  static constexpr size_t kMaxPieces = (ProcessMemory::kMaxPieces - std::tuple_size_v<Others>) / 2;
  static constexpr size_t kSize = kMaxPieces * (kPage + kReach);  // of which only what is used takes memory

  bool Add(const ProcessMemory& memory, uint64_t begin, uint64_t end);
  bool AddFrames(const ProcessMemory& memory, uint64_t address, uint64_t end);
  bool Holds(uint64_t address) const;

  Pages<char> pages_{2 * kSize + kOthersSize};
  Piece pieces_[kMaxPieces];
  size_t count_ = 0;
  size_t size_ = 0;  // of one copy
  size_t others_size_ = 0;
  mutable size_t last_ = 0;  // where the last frame was found: the next is there too, or in the next piece
};

}  // namespace trainperf

#endif  // TRAINPERF_CPYTHON_FRAME_COPIES_H_
