#include "trainperf/run/run_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

absl::Status RefusalOf(const std::string& path, int error) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  switch (error) {
    case EEXIST:
      return absl::AlreadyExistsError(
          absl::StrCat(path, " exists already: give another name, or overwrite=True to replace it"));
    case ENOENT:
      if (access(folder.c_str(), F_OK) == 0) {  // /proc: nothing can be made in it
        return absl::NotFoundError(absl::StrCat("the run file ", path, " cannot be made in ", folder, ": ",
                                                std::strerror(error), ": choose another folder"));
      }
      return absl::NotFoundError(absl::StrCat("the folder ", folder, " does not exist: make it first"));
    case ENOTDIR:
      return absl::InvalidArgumentError(absl::StrCat(folder, " is not a folder"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat("the run file ", path, " cannot be made: ", std::strerror(error),
                                                      ": choose a folder that can be written to"));
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat("the run file ", path, " cannot be made: ", std::strerror(error),
                                                       ": choose a path on another disk"));
    default:
      return absl::InvalidArgumentError(absl::StrCat("the run file ", path, " cannot be made: ", std::strerror(error)));
  }
}

// Owner and permissions of the file that is replaced: who made it private did not ask for a public one.
void KeepAccess(int fd, const struct stat& replaced) {
  // Only root may give a file away; the permissions are kept either way.
  if (fchown(fd, replaced.st_uid, replaced.st_gid) != 0) errno = 0;
  if (fchmod(fd, replaced.st_mode & 0777) != 0) errno = 0;  // a file system without permissions
}

}  // namespace

absl::Status MakeRunFile(const std::string& path, bool overwrite) {
  struct stat found;
  bool replaces = false;
  if (path.find('\0') != std::string::npos) return absl::InvalidArgumentError("a path cannot hold a null character");
  if (stat(path.c_str(), &found) == 0) {
    if (S_ISDIR(found.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is a folder: name a file in it, such as ", path,
                                                     path.back() == '/' ? "" : "/", "run.tpr"));
    }
    if (!S_ISREG(found.st_mode))
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file: give another name"));
    replaces = overwrite;
    if (overwrite) RemoveRunFile(path);
  } else if (overwrite && lstat(path.c_str(), &found) == 0) {
    unlink(path.c_str());  // a link to nowhere
  }
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0644);
  if (fd < 0) return RefusalOf(path, errno);
  if (replaces) KeepAccess(fd, found);
  close(fd);
  // A log left behind by an earlier run of this name would be taken for this one's.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) unlink(absl::StrCat(path, suffix).c_str());
  return absl::OkStatus();
}

std::vector<std::string> TemporaryFolders() {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("TMPDIR"); folder != nullptr && *folder != '\0') folders.emplace_back(folder);
  for (const char* folder : {"/tmp", "/var/tmp", "/dev/shm"}) {
    if (folders.empty() || folders[0] != folder) folders.emplace_back(folder);
  }
  return folders;
}

absl::StatusOr<std::string> MakeTemporaryRunFileIn(const std::string& folder) {
  std::string path = absl::StrCat(folder, "/trainperf-XXXXXX.tpr");
  const int fd = mkostemps(path.data(), 4, O_CLOEXEC);
  if (fd < 0) return absl::PermissionDeniedError(std::strerror(errno));
  close(fd);
  return path;
}

absl::StatusOr<std::string> MakeTemporaryRunFile() {
  absl::StatusOr<std::string> path;
  for (const std::string& folder : TemporaryFolders()) {
    path = MakeTemporaryRunFileIn(folder);
    if (path.ok()) return path;
  }
  return absl::PermissionDeniedError(absl::StrCat("no folder for temporary files can be written to (",
                                                  path.status().message(), "): set TMPDIR, or give the run a path"));
}

void RemoveRunFile(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) unlink(absl::StrCat(path, suffix).c_str());
}

FileIdentity::FileIdentity(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return;
  known_ = true;
  device_ = found.st_dev;
  inode_ = found.st_ino;
}

bool FileIdentity::IsStillAt(const std::string& path) const {
  const FileIdentity now(path);
  return known_ && now.known_ && now.device_ == device_ && now.inode_ == inode_;
}

}  // namespace trainperf
