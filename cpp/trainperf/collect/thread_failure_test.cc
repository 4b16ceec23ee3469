#include "trainperf/collect/thread_failure.h"

#include <new>
#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainperf {
namespace {

using ::testing::HasSubstr;

TEST(ThreadFailure, IsNoneWhereNothingIsThrown) {
  bool ran = false;
  EXPECT_FALSE(ThreadFailure::Of([&] { ran = true; }).happened());
  EXPECT_TRUE(ran);
  EXPECT_FALSE(ThreadFailure().happened());
}

TEST(ThreadFailure, SaysWhy) {
  const ThreadFailure memory = ThreadFailure::Of([] { throw std::bad_alloc(); });
  EXPECT_TRUE(memory.happened());
  EXPECT_THAT(memory.Note(), HasSubstr("failed (out of memory):"));
  EXPECT_THAT(ThreadFailure::Of([] { throw std::out_of_range("a place"); }).Note(), HasSubstr("failed (a place):"));
}

TEST(ThreadFailure, HappenedWhateverTheExceptionSays) {
  const ThreadFailure silent = ThreadFailure::Of([] { throw std::runtime_error(""); });
  EXPECT_TRUE(silent.happened());
  const ThreadFailure endless = ThreadFailure::Of([] { throw std::runtime_error(std::string(1000, 'x')); });
  EXPECT_THAT(endless.Note(), HasSubstr("failed (" + std::string(127, 'x') + "):"));
}

}  // namespace
}  // namespace trainperf
