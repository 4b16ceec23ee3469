// The text of a file, plain or gzip, in pieces; nothing of it is kept.
//
//   TRAINPERF_ASSIGN_OR_RETURN(auto source, ByteSource::Open("t.json.gz"));
//   while (size_t got = source->Read(buffer, sizeof(buffer))) Use(buffer, got);
//   if (!source->trouble().empty()) ...                 // it was cut, or damaged: what came before is good
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_BYTE_SOURCE_H_
#define TRAINPERF_TRACE_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace trainperf {

class ByteSource {
 public:
  // NotFound, PermissionDenied, InvalidArgument (a directory, a device) or Unavailable.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path);
  virtual ~ByteSource() = default;

  // Fewer bytes than asked for only at the end; 0 at the end.
  virtual size_t Read(char* to, size_t size) = 0;

  virtual bool gzip() const = 0;
  virtual int64_t file_bytes() const = 0;  // as the file was when it was opened
  virtual int64_t done_bytes() const = 0;  // of the file, so far
  // Why the end came early, for people; empty when it did not.
  const std::string& trouble() const { return trouble_; }

 protected:
  std::string trouble_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_BYTE_SOURCE_H_
