#include "trainperf/base/proc_text.h"

#include <fcntl.h>

namespace trainperf {
namespace {

constexpr size_t kEnoughOfFile = 65536;

}  // namespace

std::string Slurp(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text;
  char buffer[4096];  // most are smaller; a string of 64 KiB would cost more to clear than they cost to read
  for (ssize_t n; text.size() < kEnoughOfFile && (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

}  // namespace trainperf
