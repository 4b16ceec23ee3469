// Frames are memory of our own: what is copied of it, and in how many pieces.

#include "trainperf/cpython/frame_copies.h"

#include <cstring>

#include "gtest/gtest.h"
#include "trainperf/base/own_heap.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/cpython/process_memory.h"

namespace trainperf {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kFrameSize = 80;

class FrameCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    tp_python_offsets.frames_are_contiguous = 1;
    tp_python_offsets.frame_read_size = kFrameSize;
    for (size_t i = 0; i < kPages * kPage; ++i) memory_[i] = static_cast<char>(i * 31 + i / kPage);
    copies_.Clear();
  }

  uint64_t At(uint64_t page, uint64_t offset) const {
    return reinterpret_cast<uint64_t>(memory_.get()) + page * kPage + offset;
  }
  const char* Find(uint64_t frame, bool alone = false) { return copies_.Find(reader_, frame, alone); }
  static bool IsCopy(const char* copy, uint64_t frame) {
    return copy != nullptr && memcmp(copy, reinterpret_cast<const void*>(frame), kFrameSize) == 0;
  }
  size_t pieces() const { return (copies_.pieces() - std::tuple_size_v<FrameCopies::Others>) / 2; }

  static constexpr size_t kPages = 6;
  Pages<char> memory_{kPages * kPage};
  const ProcessMemory reader_ = ProcessMemory::Open();
  FrameCopies copies_;
};

TEST_F(FrameCopiesTest, ReachesBackToCallersOnThePageBefore) {
  EXPECT_TRUE(IsCopy(Find(At(2, 64)), At(2, 64)));
  EXPECT_TRUE(IsCopy(Find(At(1, 4000)), At(1, 4000)));
  EXPECT_EQ(pieces(), 1);
}

TEST_F(FrameCopiesTest, PagesThatFollowOneAnotherAreOnePiece) {
  for (uint64_t page = 1; page < kPages - 1; ++page) EXPECT_TRUE(IsCopy(Find(At(page, 64)), At(page, 64)));
  EXPECT_EQ(pieces(), 1);
  EXPECT_TRUE(IsCopy(Find(At(0, 64)), At(0, 64)));
  EXPECT_EQ(pieces(), 2);
}

TEST_F(FrameCopiesTest, AFrameThatIsAloneIsCopiedAlone) {
  EXPECT_TRUE(IsCopy(Find(At(1, 64), /*alone=*/true), At(1, 64)));
  EXPECT_EQ(copies_.First(At(1, 64 + kFrameSize)), nullptr);
}

TEST_F(FrameCopiesTest, BothCopiesAndTheOthersLieApart) {
  const uint64_t frames[] = {At(3, 512), At(1, 512), At(2, 512), At(5, 512)};
  for (const uint64_t frame : frames) ASSERT_TRUE(IsCopy(Find(frame), frame));
  char other[] = "others";
  ASSERT_TRUE(copies_.ReadTwice(reader_, {iovec{other, sizeof(other)}}));
  EXPECT_STREQ(copies_.others(), "others");
  for (const uint64_t frame : frames) {
    EXPECT_TRUE(IsCopy(copies_.First(frame), frame));
    EXPECT_TRUE(IsCopy(copies_.Second(copies_.First(frame)), frame));
  }
  // Of a frame that changed since it was found both copies are new.
  memory_[3 * kPage + 512] ^= 1;
  ASSERT_TRUE(copies_.ReadTwice(reader_, {iovec{other, sizeof(other)}}));
  EXPECT_TRUE(IsCopy(copies_.First(frames[0]), frames[0]));
  EXPECT_TRUE(IsCopy(copies_.Second(copies_.First(frames[0])), frames[0]));
}

}  // namespace
}  // namespace trainperf
