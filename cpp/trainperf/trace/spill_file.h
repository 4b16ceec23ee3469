// A temporary file without a name, in $TMPDIR: it is gone when we are. Not thread-safe.

#ifndef TRAINPERF_TRACE_SPILL_FILE_H_
#define TRAINPERF_TRACE_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace trainperf {

class SpillFile {
 public:
  SpillFile() = default;
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  ~SpillFile();

  absl::Status Open();  // idempotent
  absl::Status Append(const void* bytes, size_t size);
  absl::Status Read(int64_t offset, void* to, size_t size) const;
  int64_t size() const { return size_; }

 private:
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_SPILL_FILE_H_
