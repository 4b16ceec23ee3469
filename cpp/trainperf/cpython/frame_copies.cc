#include "trainperf/cpython/frame_copies.h"

#include "trainperf/cpython/offsets.h"

namespace trainperf {

void FrameCopies::Clear() { count_ = size_ = last_ = 0; }

bool FrameCopies::Add(const ProcessMemory& memory, uint64_t begin, uint64_t end) {
  if (count_ == kMaxPieces || end - begin > kSize - size_) return false;
  if (!memory.Read(begin, pages_.get() + size_, end - begin)) return false;
  last_ = count_;
  pieces_[count_++] = {begin, end, size_};
  size_ += end - begin;
  return true;
}

const char* FrameCopies::Find(const ProcessMemory& memory, uint64_t address) {
  if (address % alignof(void*) != 0) return nullptr;
  if (const char* found = First(address); found != nullptr) return found;
  const uint64_t end = address + static_cast<uint64_t>(tp_python_offsets.frame_read_size);
  if (end < address) return nullptr;
  bool added = false;
  if (tp_python_offsets.frames_are_contiguous) {
    // All of its page, since frames come and go behind it. Close to the begin of a page the callers are on the one
    // before, which may not be mapped.
    const uint64_t page = address & ~(kPage - 1);
    const uint64_t pages_end = (end + kPage - 1) & ~(kPage - 1);
    added = (address - page < kReach && Add(memory, page - kReach, pages_end)) || Add(memory, page, pages_end);
  } else {
    added = Add(memory, address, end);
  }
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

const char* FrameCopies::Second(uint64_t address) const {
  const char* first = First(address);
  return first != nullptr ? first + size_ + others_size_ : nullptr;
}

}  // namespace trainperf
