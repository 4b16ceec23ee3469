// What goes wrong in the tests of the run file: disks that are full, memory that there is none of.

#ifndef TRAINPERF_RUN_RUN_FAILURE_TEST_UTIL_H_
#define TRAINPERF_RUN_RUN_FAILURE_TEST_UTIL_H_

#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <climits>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace trainperf {

// No file of this process may grow beyond the limit, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

// A folder on a full disk: files can be made in it, but SQLite can write nothing into them.
class FullFolder {
 public:
  explicit FullFolder(const std::string& path) : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_) {
    folder_ = path;
    refused_ = 0;
    vfs_.zName = "full";
    vfs_.pAppData = real_;
    vfs_.xOpen = &Open;
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~FullFolder() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_, 1);
  }
  static int refused() { return refused_; }

 private:
  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    auto* const real = static_cast<sqlite3_vfs*>(vfs->pAppData);
    const int rc = real->xOpen(real, name, file, flags, out_flags);
    if (rc != SQLITE_OK || name == nullptr || std::string(name).rfind(folder_ + "/", 0) != 0) return rc;
    static std::map<const sqlite3_io_methods*, sqlite3_io_methods> of_kinds;  // a journal is closed unlike a database
    sqlite3_io_methods& methods = of_kinds.try_emplace(file->pMethods, *file->pMethods).first->second;
    methods.xWrite = [](sqlite3_file*, const void*, int, sqlite3_int64) {
      ++refused_;
      return SQLITE_FULL;
    };
    file->pMethods = &methods;
    return rc;
  }

  static inline std::string folder_;
  static inline int refused_ = 0;
  sqlite3_vfs* const real_;
  sqlite3_vfs vfs_;
};

// An environment variable that is another meanwhile.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// After `allocations` more there are `failures` that fail. In a program whose operator new asks Fails() each time.
class NoMemory {
 public:
  NoMemory(int allocations, int failures) {
    failures_ = failures;
    until_none_ = allocations;
  }
  ~NoMemory() { until_none_ = INT_MAX; }
  static bool Fails() { return until_none_ != INT_MAX && --until_none_ < 0 && failures_-- > 0; }

 private:
  static inline int until_none_ = INT_MAX;
  static inline int failures_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_RUN_FAILURE_TEST_UTIL_H_
