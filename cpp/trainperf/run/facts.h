// The small tables: meta, tier, overhead, dropped, note, thread, object, host, site and stack.

#ifndef TRAINPERF_RUN_FACTS_H_
#define TRAINPERF_RUN_FACTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trainperf/base/stack_table.h"
#include "trainperf/run/run_part.h"
#include "trainperf/run/run_writer.h"

namespace trainperf {

// Values by key, at most `max` of them, that remember which are not in the file yet.
template <typename Key, typename Value>
class KeyedFacts {
 public:
  explicit KeyedFacts(size_t max) : max_(max) {}

  // Null when the table is full and does not have the key; the caller changes the value that it points to.
  Value* Change(const Key& key) {
    auto it = values_.find(key);
    if (it == values_.end()) {
      if (values_.size() >= max_) {
        ++refused_;
        return nullptr;
      }
      it = values_.emplace(key, Entry{}).first;
    }
    it->second.unwritten = true;
    return &it->second.value;
  }

  void Set(const Key& key, const Value& value) {
    const auto it = values_.find(key);
    if (it != values_.end() && it->second.value == value) return;
    if (Value* target = Change(key)) *target = value;
  }

  const Value* Find(const Key& key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : &it->second.value;
  }

  template <typename WriteOne>
  absl::Status WriteEach(WriteOne&& write) const {
    for (const auto& [key, entry] : values_) {
      if (entry.unwritten) TRAINPERF_RETURN_IF_ERROR(write(key, entry.value));
    }
    return absl::OkStatus();
  }

  void MarkAll(bool unwritten) {
    for (auto& [key, entry] : values_) entry.unwritten = unwritten;
  }

  size_t size() const { return values_.size(); }
  int64_t refused() const { return refused_; }

 private:
  struct Entry {
    Value value{};
    bool unwritten = true;
  };
  const size_t max_;
  std::map<Key, Entry> values_;
  int64_t refused_ = 0;
};

class Facts : public RunPart {
 public:
  static constexpr size_t kMaxHostReadings = 4096;  // beyond, every second one goes

  void SetMeta(const std::string& key, const std::string& value) { meta_.Set(key, value); }
  void AddNote(const std::string& text);
  void SetTier(const std::string& probe, const std::string& tier, const std::string& why) {
    tiers_.Set(probe, {tier, why});
  }
  void SetThread(ThreadId id, int32_t native_tid, const std::string& name, const std::string& role);
  void SetThreadGilWait(ThreadId id, int64_t wait_ns, int64_t waits);
  void SetObject(uint32_t id, const std::string& kind, const std::string& description) {
    objects_.Set(id, {kind, description});
  }
  void AddHostReading(const HostReading& reading, const std::vector<Counter>& machine);
  void SetOverhead(const std::string& where, int64_t ns) { overhead_.Set(where, ns); }
  void SetDropped(const std::string& what, int64_t count) { dropped_.Set(what, count); }
  void SetStacks(const StackTable* table) { stacks_ = table; }
  // Notes, objects and such that came after their table was full.
  int64_t refused() const {
    return meta_.refused() + notes_.refused() + tiers_.refused() + threads_.refused() + objects_.refused();
  }

  absl::Status Write(Database& db) override;
  void Written() override;
  void MarkAllUnwritten() override { MarkAll(true); }

 private:
  struct Note {
    int64_t id = 0;
    int64_t count = 0;
  };
  struct Thread {
    int32_t native_tid = 0;
    std::string name;
    std::string role;
    int64_t gil_wait_ns = 0;
    int64_t gil_waits = 0;
    bool operator==(const Thread& o) const {
      return std::tie(native_tid, name, role, gil_wait_ns, gil_waits) ==
             std::tie(o.native_tid, o.name, o.role, o.gil_wait_ns, o.gil_waits);
    }
  };
  using TwoTexts = std::pair<std::string, std::string>;

  void MarkAll(bool unwritten);
  absl::Status WriteStacks(Database& db);

  KeyedFacts<std::string, std::string> meta_{1024};
  KeyedFacts<std::string, Note> notes_{256};
  KeyedFacts<std::string, TwoTexts> tiers_{256};
  KeyedFacts<uint32_t, Thread> threads_{4096};
  KeyedFacts<uint32_t, TwoTexts> objects_{4096};
  KeyedFacts<std::string, int64_t> overhead_{256};
  KeyedFacts<std::string, int64_t> dropped_{256};

  struct Reading {
    HostReading host;
    std::vector<std::pair<int64_t, int64_t>> machine;  // of a counter, by its id, so far; sorted
  };
  absl::Status WriteHost(Database& db);

  KeyedFacts<std::string, int64_t> counters_{256};  // their ids
  std::vector<Reading> host_;
  int64_t host_seen_ = 0;
  int64_t host_stride_ = 1;
  size_t host_unwritten_from_ = 0;
  bool host_is_stale_ = true;

  const StackTable* stacks_ = nullptr;
  uint32_t stacks_written_ = 0, stacks_pending_ = 0;
  uint32_t sites_written_ = 0, sites_pending_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_FACTS_H_
