#include "trainperf/timeline/detail_table.h"

namespace trainperf {
namespace {

constexpr size_t kLookThrough = 12;  // below it, looking through all entries beats hashing
constexpr size_t kMaxStackless = 1536;

}  // namespace

DetailTable::Entry* DetailTable::Find(const DetailKey& key) {
  if (index_.empty()) {
    for (size_t i = entries_.size(); i-- > 0;) {
      if (entries_[i].key == key) return &entries_[i];
    }
    return nullptr;
  }
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void DetailTable::Add(DetailKey key, int64_t ns, int64_t count) {
  Entry* entry = Find(key);
  if (entry == nullptr && entries_.size() >= kMaxKeys) {
    key.stack = 0;
    entry = Find(key);
    if (entry == nullptr && entries_.size() >= kMaxStackless) {
      key.thread = 0;
      key.code = 0;
      entry = Find(key);
    }
  }
  if (entry != nullptr) {
    entry->ns += ns;
    entry->count += count;
    return;
  }
  entries_.push_back({key, ns, count});
  if (!index_.empty()) {
    index_.emplace(key, static_cast<uint32_t>(entries_.size() - 1));
  } else if (entries_.size() > kLookThrough) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].key, static_cast<uint32_t>(i));
  }
}

void DetailTable::Append(const DetailTable& other) {
  for (const Entry& entry : other.entries_) Add(entry.key, entry.ns, entry.count);
}

void DetailTable::Clear() {
  entries_.clear();
  if (!index_.empty()) index_.clear();
}

}  // namespace trainperf
