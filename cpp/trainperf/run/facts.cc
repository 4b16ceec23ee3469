#include "trainperf/run/facts.h"

#include <algorithm>

namespace trainperf {

void Facts::AddNote(const std::string& text) {
  const auto next_id = static_cast<int64_t>(notes_.size()) + 1;
  if (Note* note = notes_.Change(text)) {
    if (note->id == 0) note->id = next_id;
    ++note->count;
  }
}

void Facts::SetThread(ThreadId id, int32_t native_tid, const std::string& name, const std::string& role) {
  const Thread* known = threads_.Find(id);
  if (known != nullptr && known->native_tid == native_tid && role.empty() && (name.empty() || known->name == name)) {
    return;
  }
  if (Thread* thread = threads_.Change(id)) {
    thread->native_tid = native_tid;
    if (!name.empty()) thread->name = name;
    if (!role.empty()) thread->role = role;
  }
}

void Facts::SetThreadGilWait(ThreadId id, int64_t wait_ns, int64_t waits) {
  const Thread* known = threads_.Find(id);
  if (known != nullptr && known->gil_waits == waits && known->gil_wait_ns == wait_ns) return;
  if (Thread* thread = threads_.Change(id)) {
    thread->gil_wait_ns = wait_ns;
    thread->gil_waits = waits;
  }
}

void Facts::AddHostReading(const HostReading& reading, const std::vector<Counter>& machine) {
  if (host_seen_++ % host_stride_ != 0) return;
  if (host_.size() >= kMaxHostReadings) {
    for (size_t i = 0; i < host_.size() / 2; ++i) host_[i] = host_[2 * i];
    host_.resize(host_.size() / 2);
    host_stride_ *= 2;
    host_unwritten_from_ = 0;
    host_is_stale_ = true;
    if ((host_seen_ - 1) % host_stride_ != 0) return;
  }
  Reading& kept = host_.emplace_back(Reading{reading, {}});
  for (const Counter& counter : machine) {
    const int64_t* known = counters_.Find(counter.name);
    const int64_t id = known != nullptr ? *known : static_cast<int64_t>(counters_.size()) + 1;
    counters_.Set(counter.name, id);
    if (counters_.Find(counter.name) != nullptr) kept.machine.emplace_back(id, counter.so_far);
  }
  std::sort(kept.machine.begin(), kept.machine.end());
}

absl::Status Facts::Write(Database& db) {
  TRAINPERF_RETURN_IF_ERROR(meta_.WriteEach([&](const std::string& key, const std::string& value) {
    return db.Run("REPLACE INTO meta VALUES (?, ?)", key, value);
  }));
  TRAINPERF_RETURN_IF_ERROR(notes_.WriteEach([&](const std::string& text, const Note& note) {
    return db.Run("REPLACE INTO note VALUES (?, ?, ?)", note.id, text, note.count);
  }));
  TRAINPERF_RETURN_IF_ERROR(tiers_.WriteEach([&](const std::string& probe, const TwoTexts& tier) {
    return db.Run("REPLACE INTO tier VALUES (?, ?, ?)", probe, tier.first, tier.second);
  }));
  TRAINPERF_RETURN_IF_ERROR(threads_.WriteEach([&](ThreadId id, const Thread& t) {
    return db.Run("REPLACE INTO thread VALUES (?, ?, ?, ?, ?, ?)", id, t.native_tid, t.name, t.role, t.gil_wait_ns,
                  t.gil_waits);
  }));
  TRAINPERF_RETURN_IF_ERROR(objects_.WriteEach([&](uint32_t id, const TwoTexts& object) {
    return db.Run("REPLACE INTO object VALUES (?, ?, ?)", id, object.first, object.second);
  }));
  TRAINPERF_RETURN_IF_ERROR(overhead_.WriteEach(
      [&](const std::string& where, int64_t ns) { return db.Run("REPLACE INTO overhead VALUES (?, ?)", where, ns); }));
  TRAINPERF_RETURN_IF_ERROR(dropped_.WriteEach([&](const std::string& what, int64_t count) {
    return db.Run("REPLACE INTO dropped VALUES (?, ?)", what, count);
  }));
  TRAINPERF_RETURN_IF_ERROR(WriteHost(db));
  return WriteStacks(db);
}

absl::Status Facts::WriteHost(Database& db) {
  TRAINPERF_RETURN_IF_ERROR(counters_.WriteEach(
      [&](const std::string& name, int64_t id) { return db.Run("REPLACE INTO counter VALUES (?, ?)", id, name); }));
  if (host_is_stale_) {
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM host"));
    TRAINPERF_RETURN_IF_ERROR(db.Run("DELETE FROM machine"));
  }
  for (size_t i = host_unwritten_from_; i < host_.size(); ++i) {
    const HostReading& r = host_[i].host;
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO host VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", r.at_ns,
                                     r.process_cpu_ns, r.machine_busy_ns, r.machine_idle_ns, r.throttled_ns,
                                     r.rss_bytes, r.threads, r.runnable, r.faults, r.system_ns, r.returned_bytes));
    for (const auto& [id, so_far] : host_[i].machine) {
      const std::pair<int64_t, int64_t> same(id, so_far);  // what stands still takes no room
      if (i > 0 && std::binary_search(host_[i - 1].machine.begin(), host_[i - 1].machine.end(), same)) continue;
      TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO machine VALUES (?, ?, ?)", id, r.at_ns, so_far));
    }
  }
  return absl::OkStatus();
}

absl::Status Facts::WriteStacks(Database& db) {
  if (stacks_ == nullptr) return absl::OkStatus();
  // Stacks first: their sites were there before them.
  stacks_pending_ = stacks_->size();
  sites_pending_ = stacks_->site_count();
  for (SiteId id = sites_written_ + 1; id <= sites_pending_; ++id) {
    const Site site = stacks_->site(id);
    TRAINPERF_RETURN_IF_ERROR(
        db.Run("REPLACE INTO site VALUES (?, ?, ?, ?)", id, site.file, site.function, static_cast<int64_t>(site.line)));
  }
  for (StackId id = stacks_written_ + 1; id <= stacks_pending_; ++id) {
    const StackTable::Node node = stacks_->node(id);
    TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO stack VALUES (?, ?, ?)", id, node.parent, node.site));
  }
  return absl::OkStatus();
}

void Facts::Written() {
  MarkAll(false);
  stacks_written_ = stacks_pending_;
  sites_written_ = sites_pending_;
}

void Facts::MarkAll(bool unwritten) {
  meta_.MarkAll(unwritten);
  notes_.MarkAll(unwritten);
  tiers_.MarkAll(unwritten);
  threads_.MarkAll(unwritten);
  objects_.MarkAll(unwritten);
  overhead_.MarkAll(unwritten);
  dropped_.MarkAll(unwritten);
  counters_.MarkAll(unwritten);
  host_is_stale_ = unwritten;
  host_unwritten_from_ = unwritten ? 0 : host_.size();
  if (unwritten) stacks_written_ = sites_written_ = 0;
}

}  // namespace trainperf
