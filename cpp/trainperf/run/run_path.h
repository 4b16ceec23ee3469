// Making the file that a run is written to: the checks of the path, and private temporary files.

#ifndef TRAINPERF_RUN_RUN_PATH_H_
#define TRAINPERF_RUN_RUN_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainperf {

// Makes an empty file at `path`, exclusively. One that replaces another has its owner and permissions. Status codes as
// for RunWriter::Create.
absl::Status MakeRunFile(const std::string& path, bool overwrite);

// Where temporary files may go, the best first: TMPDIR, /tmp, /var/tmp, /dev/shm.
std::vector<std::string> TemporaryFolders();

// Makes an empty private file in the first of them in which one can be made. On a full disk that is so, too: who has
// much to write tries the folders one by one.
absl::StatusOr<std::string> MakeTemporaryRunFile();
absl::StatusOr<std::string> MakeTemporaryRunFileIn(const std::string& folder);

// Removes a run file and what SQLite may have left beside it.
void RemoveRunFile(const std::string& path);

// Whether the same file is still at the path: people delete folders of runs that are still being written.
class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(const std::string& path);
  bool IsStillAt(const std::string& path) const;

 private:
  bool known_ = false;
  unsigned long long device_ = 0;
  unsigned long long inode_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_RUN_PATH_H_
