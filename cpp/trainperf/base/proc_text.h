// Reading the kernel's small text files.

#ifndef TRAINPERF_BASE_PROC_TEXT_H_
#define TRAINPERF_BASE_PROC_TEXT_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainperf {

// Without allocating: the first `count` unsigned decimal numbers of the file behind `fd`, which is read from its start.
// How many were there.
inline int ReadInts(int fd, int64_t* values, int count) {
  char text[256];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  int found = 0;
  for (ssize_t at = 0; at < size && found < count;) {
    if (text[at] < '0' || text[at] > '9') {
      ++at;
      continue;
    }
    int64_t value = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9'; ++at) value = value * 10 + (text[at] - '0');
    values[found++] = value;
  }
  return found;
}

// The first 64 KiB or so of a file; "" when it cannot be read.
std::string Slurp(const char* path);

}  // namespace trainperf

#endif  // TRAINPERF_BASE_PROC_TEXT_H_
