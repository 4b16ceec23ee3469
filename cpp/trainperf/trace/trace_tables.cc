#include "trainperf/trace/trace_tables.h"

#include <algorithm>
#include <utility>

namespace trainperf {

uint16_t TraceTables::Thread(const std::string& key, int64_t native_tid) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto known = thread_ids_.find(key);
  if (known != thread_ids_.end()) return known->second;
  if (threads_.size() >= kMaxThreads) return 0;
  threads_.push_back({key, native_tid, ""});
  const uint16_t id = static_cast<uint16_t>(threads_.size());
  thread_ids_.emplace(key, id);
  return id;
}

void TraceTables::NameThread(const std::string& key, std::string_view name) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread_names_.size() < kMaxThreads) thread_names_[key] = std::string(name.substr(0, NameTable::kMaxLength));
}

bool TraceTables::Device(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(devices_.begin(), devices_.end(), id) != devices_.end()) return true;
  if (devices_.size() >= kMaxDevices) return false;
  devices_.push_back(id);
  return true;
}

void TraceTables::OrderThreads(const std::vector<uint16_t>& order) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ThreadInfo> ordered;
  ordered.reserve(order.size());
  for (const uint16_t id : order) ordered.push_back(std::move(threads_[id - size_t{1}]));
  threads_.swap(ordered);
  for (size_t i = 0; i < threads_.size(); ++i) thread_ids_[threads_[i].key] = static_cast<uint16_t>(i + 1);
}

std::vector<TraceTables::ThreadInfo> TraceTables::threads() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ThreadInfo> all = threads_;
  for (ThreadInfo& thread : all) {
    const auto name = thread_names_.find(thread.key);
    if (name != thread_names_.end()) thread.name = name->second;
  }
  return all;
}

}  // namespace trainperf
