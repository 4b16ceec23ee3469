#include "trainperf/trace/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

absl::Status Trouble(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("the trace is larger than memory may be, and its temporary file cannot be ", what, " (",
                   strerror(errno), "): set TMPDIR to a folder with more room"));
}

}  // namespace

SpillFile::~SpillFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SpillFile::Open() {
  if (fd_ >= 0) return absl::OkStatus();
  const char* folder = getenv("TMPDIR");
  std::string path = absl::StrCat(folder != nullptr && *folder != '\0' ? folder : "/tmp", "/trainperf-XXXXXX");
  fd_ = mkostemp(path.data(), O_CLOEXEC);
  if (fd_ < 0) return Trouble("made");
  unlink(path.c_str());
  return absl::OkStatus();
}

absl::Status SpillFile::Append(const void* bytes, size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = pwrite(fd_, from, size, size_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Trouble("written");
    from += n;
    size -= static_cast<size_t>(n);
    size_ += n;
  }
  return absl::OkStatus();
}

absl::Status SpillFile::Read(int64_t offset, void* to, size_t size) const {
  char* into = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = pread(fd_, into, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Trouble("read");
    into += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace trainperf
