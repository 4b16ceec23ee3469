#include "trainperf/base/proc_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace trainperf {
namespace {

TEST(ReadInts, ReadsFromTheStartEachTime) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  int64_t values[2];
  EXPECT_EQ(ReadInts(fds[0], values, 2), 0);  // a pipe cannot be read at an offset
  close(fds[0]);
  close(fds[1]);

  FILE* file = tmpfile();
  fputs("417747 35448 1\n", file);
  fflush(file);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(ReadInts(fileno(file), values, 2), 2);
    EXPECT_EQ(values[0], 417747);
    EXPECT_EQ(values[1], 35448);
  }
  int64_t more[8];
  EXPECT_EQ(ReadInts(fileno(file), more, 8), 3);
  fclose(file);
}

}  // namespace
}  // namespace trainperf
