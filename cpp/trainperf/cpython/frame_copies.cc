#include "trainperf/cpython/frame_copies.h"

#include <algorithm>

#include "trainperf/cpython/offsets.h"

namespace trainperf {

void FrameCopies::Clear() { count_ = size_ = last_ = 0; }

bool FrameCopies::Add(const ProcessMemory& memory, uint64_t begin, uint64_t end) {
  if (end - begin > kSize - size_) return false;
  const bool goes_on = count_ > 0 && pieces_[count_ - 1].end == begin;  // one larger piece costs less than two
  if (!goes_on && count_ == kMaxPieces) return false;
  if (!memory.Read(begin, pages_.get() + size_, end - begin)) return false;
  if (goes_on) {
    pieces_[count_ - 1].end = end;
  } else {
    pieces_[count_++] = {begin, end, size_};
  }
  last_ = count_ - 1;
  size_ += end - begin;
  return true;
}

bool FrameCopies::Holds(uint64_t address) const {
  return std::any_of(pieces_, pieces_ + count_,
                     [address](const Piece& p) { return p.begin <= address && address < p.end; });
}

// All of its page, since frames come and go behind it. Close to the begin of a page the callers of Python's frames are
// on the one before, which may not be mapped; those of C code's frames are on the one behind, and come to the same
// place from there.
bool FrameCopies::AddFrames(const ProcessMemory& memory, uint64_t address, uint64_t end) {
  const uint64_t page = address & ~(kPage - 1);
  const uint64_t pages_end = (end + kPage - 1) & ~(kPage - 1);
  const bool reaches_back = address - page < kReach && !Holds(page - 1);
  return (reaches_back && Add(memory, page - kReach, pages_end)) || Add(memory, page, pages_end);
}

const char* FrameCopies::Find(const ProcessMemory& memory, uint64_t address, bool alone) {
  if (address % alignof(void*) != 0) return nullptr;
  if (const char* found = First(address); found != nullptr) return found;
  const uint64_t end = address + static_cast<uint64_t>(tp_python_offsets.frame_read_size);
  if (end < address) return nullptr;
  const bool added =
      tp_python_offsets.frames_are_contiguous && !alone ? AddFrames(memory, address, end) : Add(memory, address, end);
  return added ? First(address) : nullptr;
}

bool FrameCopies::ReadTwice(const ProcessMemory& memory, const Others& others) {
  iovec pieces[ProcessMemory::kMaxPieces];
  size_t count = 0;
  const auto add_frames = [&] {
    for (size_t i = 0; i < count_; ++i) {
      pieces[count++] = {reinterpret_cast<void*>(pieces_[i].begin), pieces_[i].end - pieces_[i].begin};
    }
  };
  add_frames();
  others_size_ = 0;
  for (const iovec& other : others) {
    pieces[count++] = other;
    others_size_ += other.iov_len;
  }
  add_frames();
  return others_size_ <= kOthersSize && memory.ReadPieces(pieces, count, pages_.get()) == count;
}

const char* FrameCopies::First(uint64_t address) const {
  const auto size = static_cast<uint64_t>(tp_python_offsets.frame_read_size);
  for (size_t i = 0; i < count_; ++i) {
    const size_t at = last_ + i < count_ ? last_ + i : last_ + i - count_;
    // What is no frame may lead anywhere, so the end of one at `address` may be beyond the last address there is.
    if (address < pieces_[at].begin || address >= pieces_[at].end || pieces_[at].end - address < size) continue;
    last_ = at;
    return pages_.get() + pieces_[at].at + (address - pieces_[at].begin);
  }
  return nullptr;
}

}  // namespace trainperf
