// The names and threads of a trace, as small numbers. Thread-safe; parsers keep what they have learned in caches of
// their own, so the lock is seldom taken.

#ifndef TRAINPERF_TRACE_TRACE_TABLES_H_
#define TRAINPERF_TRACE_TRACE_TABLES_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/base/name_table.h"

namespace trainperf {

class TraceTables {
 public:
  static constexpr uint16_t kMaxThreads = 4096;
  static constexpr size_t kMaxDevices = 256;

  struct ThreadInfo {
    std::string key;  // "pid/tid"
    int64_t native_tid;
    std::string name;  // "" when the trace does not tell
  };

  uint32_t InternKernel(std::string_view name) { return Intern(&kernels_, name); }
  uint32_t InternHost(std::string_view name) { return Intern(&host_, name); }
  // From 1; 0: there are too many.
  uint16_t Thread(const std::string& key, int64_t native_tid);
  void NameThread(const std::string& key, std::string_view name);
  // False: there are too many.
  bool Device(uint32_t id);

  // Once nobody parses any more.
  const NameTable& kernels() const { return kernels_; }
  const NameTable& host_names() const { return host_; }
  std::vector<ThreadInfo> threads() const;  // of thread 1, 2 ...
  // From now on thread `order[i]` is thread i + 1.
  void OrderThreads(const std::vector<uint16_t>& order);
  const std::vector<uint32_t>& devices() const { return devices_; }

 private:
  uint32_t Intern(NameTable* table, std::string_view name) {
    std::lock_guard<std::mutex> lock(mutex_);
    return table->Intern(absl::string_view(name.data(), name.size()));
  }

  mutable std::mutex mutex_;
  NameTable kernels_{16'384};
  NameTable host_{16'384};
  absl::flat_hash_map<std::string, uint16_t> thread_ids_;
  absl::flat_hash_map<std::string, std::string> thread_names_;
  std::vector<ThreadInfo> threads_;
  std::vector<uint32_t> devices_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TRACE_TABLES_H_
