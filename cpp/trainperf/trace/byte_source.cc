#include "trainperf/trace/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainperf/trace/inflate.h"

namespace trainperf {
namespace {

constexpr size_t kPackedPiece = 256 << 10;

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd_); }

  // As much as there is, up to `size`. Reading instead of mapping: a file that is cut meanwhile only ends early.
  size_t Read(char* to, size_t size, std::string* trouble) {
    size_t got = 0;
    while (got < size) {
      const ssize_t n = read(fd_, to + got, size - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) *trouble = absl::StrCat("it cannot be read on: ", strerror(errno));
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    done_ += static_cast<int64_t>(got);
    return got;
  }
  int64_t done() const { return done_; }
  int fd() const { return fd_; }

 private:
  const int fd_;
  int64_t done_ = 0;
};

class PlainSource : public ByteSource {
 public:
  PlainSource(std::unique_ptr<File> file, int64_t bytes) : file_(std::move(file)), bytes_(bytes) {}
  size_t Read(char* to, size_t size) override { return file_->Read(to, size, &trouble_); }
  bool gzip() const override { return false; }
  int64_t file_bytes() const override { return bytes_; }
  int64_t done_bytes() const override { return file_->done(); }

 private:
  std::unique_ptr<File> file_;
  const int64_t bytes_;
};

// Traces inflate to 10 to 40 times their size, a file of zeros to 1000 times. That many bytes are read in any case.
constexpr int64_t kTooMuch = int64_t{1} << 28;
constexpr int64_t kMostTimes = 200;

class GzipSource : public ByteSource {
 public:
  GzipSource(std::unique_ptr<File> file, int64_t bytes)
      : file_(std::move(file)), bytes_(bytes), packed_(kPackedPiece) {}

  size_t Read(char* to, size_t size) override {
    size_t got = 0;
    while (got < size && !over_) {
      if (inflater_.input_left() == 0 && !Refill()) break;
      size_t made = 0;
      const size_t left = inflater_.input_left();
      Inflater::Result result = inflater_.Next(to + got, size - got, &made);
      if (result == Inflater::Result::kOk && made == 0 && inflater_.input_left() == left) {
        result = Inflater::Result::kDamaged;  // no way on
      }
      got += made;
      in_member_ = result != Inflater::Result::kEnd;
      if (result == Inflater::Result::kDamaged) {
        over_ = true;
        // Bytes after the last member are padding, as of a tape; gzip itself ignores them.
        if (members_ == 0 || made > 0 || member_made_ > 0) trouble_ = "its compressed data is damaged";
      }
      member_made_ += made;
      made_ += static_cast<int64_t>(made);
      if (made_ > kTooMuch && made_ / kMostTimes > file_->done()) {
        over_ = true;
        trouble_ = absl::StrCat("it inflates to more than ", kMostTimes, " times its size, as no trace does");
      }
      if (result == Inflater::Result::kEnd) {
        ++members_;
        member_made_ = 0;
      }
    }
    return got;
  }
  bool gzip() const override { return true; }
  int64_t file_bytes() const override { return bytes_; }
  int64_t done_bytes() const override { return file_->done(); }

 private:
  bool Refill() {
    const size_t got = file_->Read(packed_.data(), packed_.size(), &trouble_);
    if (got == 0) {
      over_ = true;
      if (in_member_ && trouble_.empty()) trouble_ = "it ends in the middle of its compressed data";
      return false;
    }
    inflater_.SetInput(packed_.data(), got);
    return true;
  }

  std::unique_ptr<File> file_;
  const int64_t bytes_;
  std::vector<char> packed_;
  Inflater inflater_;
  bool over_ = false;
  bool in_member_ = true;
  int64_t members_ = 0;
  size_t member_made_ = 0;
  int64_t made_ = 0;
};

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not hang us
  if (fd < 0) return OpenError(path, errno);
  auto file = std::make_unique<File>(fd);
  struct stat facts;
  if (fstat(fd, &facts) != 0) return OpenError(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, S_ISDIR(facts.st_mode) ? " is a folder: name a trace in it" : " is no file"));
  }
  if (facts.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  unsigned char magic[2] = {0, 0};
  const ssize_t n = pread(fd, magic, sizeof(magic), 0);
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  if (n == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(std::move(file), facts.st_size));
  }
  return std::unique_ptr<ByteSource>(std::make_unique<PlainSource>(std::move(file), facts.st_size));
}

}  // namespace trainperf
