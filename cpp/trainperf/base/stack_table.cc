#include "trainperf/base/stack_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

namespace trainperf {
namespace {

constexpr uint32_t kMaxSites = 1 << 15;
constexpr uint32_t kMaxNodes = 1 << 17;
constexpr uint32_t kMaxNames = 1 << 15;
constexpr uint32_t kNameBytes = 4 << 20;
constexpr uint32_t kIndexFactor = 2;  // open addressing stays short below half full

uint64_t Mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

}  // namespace

// All of it lies in one anonymous mapping: address space at first, memory as it is used.
struct StackTable::Impl {
  struct Text {
    uint32_t offset;
    uint32_t size;
  };

  struct StoredSite {
    uint32_t file;  // index into texts, from 1
    uint32_t function;
    int32_t line;
  };

  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> generation{1};
  std::atomic<uint32_t> nodes_used{0};
  std::atomic<uint32_t> sites_used{0};
  uint32_t texts_used = 0;
  uint32_t name_bytes_used = 0;

  // What Reset() gives back to the kernel, which hands it out again as zeros.
  struct Storage {
    Node nodes[kMaxNodes];
    StoredSite sites[kMaxSites];
    Text texts[kMaxNames];
    uint32_t node_index[kIndexFactor * kMaxNodes];
    uint32_t site_index[kIndexFactor * kMaxSites];
    uint32_t text_index[kIndexFactor * kMaxNames];
    char names[kNameBytes];
  };
  Storage* storage = nullptr;

  uint32_t InternText(std::string_view text) {
    constexpr uint32_t kMask = kIndexFactor * kMaxNames - 1;
    for (uint32_t at = static_cast<uint32_t>(Mix(std::hash<std::string_view>()(text))) & kMask;;
         at = (at + 1) & kMask) {
      const uint32_t entry = storage->text_index[at];
      if (entry == 0) {
        if (texts_used == kMaxNames || text.size() > kNameBytes - name_bytes_used) return 0;
        std::memcpy(storage->names + name_bytes_used, text.data(), text.size());
        storage->texts[texts_used] = {name_bytes_used, static_cast<uint32_t>(text.size())};
        name_bytes_used += static_cast<uint32_t>(text.size());
        return storage->text_index[at] = ++texts_used;
      }
      if (ViewOf(entry) == text) return entry;
    }
  }

  std::string_view ViewOf(uint32_t text) const {
    const Text& t = storage->texts[text - 1];
    return {storage->names + t.offset, t.size};
  }

  SiteId InternSite(std::string_view file, std::string_view function, int32_t line) {
    const uint32_t file_text = InternText(file);
    const uint32_t function_text = InternText(function);
    if (file_text == 0 || function_text == 0) return 0;
    constexpr uint32_t kMask = kIndexFactor * kMaxSites - 1;
    const uint64_t key = (uint64_t{file_text} << 44) ^ (uint64_t{function_text} << 24) ^ static_cast<uint32_t>(line);
    for (uint32_t at = static_cast<uint32_t>(Mix(key)) & kMask;; at = (at + 1) & kMask) {
      const SiteId entry = storage->site_index[at];
      if (entry == 0) {
        const uint32_t used = sites_used.load(std::memory_order_relaxed);
        if (used == kMaxSites) return 0;
        storage->sites[used] = {file_text, function_text, line};
        sites_used.store(used + 1, std::memory_order_release);
        return storage->site_index[at] = used + 1;
      }
      const StoredSite& site = storage->sites[entry - 1];
      if (site.file == file_text && site.function == function_text && site.line == line) return entry;
    }
  }

  // 0: full, and not there yet.
  StackId InternNode(StackId parent, SiteId site) {
    constexpr uint32_t kMask = kIndexFactor * kMaxNodes - 1;
    const uint64_t key = (uint64_t{parent} << 32) | site;
    for (uint32_t at = static_cast<uint32_t>(Mix(key)) & kMask;; at = (at + 1) & kMask) {
      const StackId entry = storage->node_index[at];
      if (entry == 0) {
        const uint32_t used = nodes_used.load(std::memory_order_relaxed);
        if (used == kMaxNodes) return 0;
        storage->nodes[used] = {parent, site};
        nodes_used.store(used + 1, std::memory_order_release);
        return storage->node_index[at] = used + 1;
      }
      const Node& node = storage->nodes[entry - 1];
      if (node.parent == parent && node.site == site) return entry;
    }
  }

  bool TryEnter() {
    if (!busy.test_and_set(std::memory_order_acquire)) return true;
    Refuse();
    return false;
  }
  void Leave() { busy.clear(std::memory_order_release); }
  void Refuse() { refused.fetch_add(1, std::memory_order_relaxed); }
};

StackTable& StackTable::Get() {
  static StackTable* const table = new StackTable();
  return *table;
}

StackTable::~StackTable() {
  Impl* impl = impl_.load(std::memory_order_acquire);
  if (impl == nullptr) return;
  munmap(impl->storage, sizeof(Impl::Storage));
  delete impl;
}

void StackTable::Init() {
  if (impl_.load(std::memory_order_acquire) != nullptr) return;
  void* memory =
      mmap(nullptr, sizeof(Impl::Storage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // every Intern is refused then: no stacks, nothing worse
  Impl* impl = new (std::nothrow) Impl();
  if (impl == nullptr) {
    munmap(memory, sizeof(Impl::Storage));
    return;
  }
  impl->storage = static_cast<Impl::Storage*>(memory);
  Impl* expected = nullptr;
  if (!impl_.compare_exchange_strong(expected, impl, std::memory_order_acq_rel)) {
    munmap(memory, sizeof(Impl::Storage));
    delete impl;
  }
}

void StackTable::Reset() {
  Impl* impl = impl_.load(std::memory_order_acquire);
  if (impl == nullptr) return;
  impl->nodes_used.store(0, std::memory_order_release);
  impl->sites_used.store(0, std::memory_order_release);
  impl->texts_used = 0;
  impl->name_bytes_used = 0;
  impl->refused.store(0, std::memory_order_relaxed);
  impl->generation.fetch_add(1, std::memory_order_acq_rel);
  if (madvise(impl->storage, sizeof(Impl::Storage), MADV_DONTNEED) != 0) {
    std::memset(static_cast<void*>(impl->storage), 0, sizeof(Impl::Storage));
  }
  impl->busy.clear(std::memory_order_release);  // after a fork its holder may not exist
}

SiteId StackTable::InternSite(std::string_view file, std::string_view function, int32_t line) {
  Impl* impl = impl_.load(std::memory_order_acquire);
  if (impl == nullptr || !impl->TryEnter()) return 0;
  if (file.size() > kMaxName) file.remove_prefix(file.size() - kMaxName);
  if (function.size() > kMaxName) function = function.substr(0, kMaxName);
  const SiteId id = impl->InternSite(file, function, line);
  if (id == 0) impl->Refuse();
  impl->Leave();
  return id;
}

StackId StackTable::Intern(const SiteId* innermost_first, size_t count, StackId caller, StackId* each) {
  Impl* impl = impl_.load(std::memory_order_acquire);
  if (impl == nullptr || !impl->TryEnter()) return 0;
  StackId at = caller;
  bool cut = false;
  for (size_t i = count; i-- > 0;) {
    const StackId next = !cut && innermost_first[i] != 0 ? impl->InternNode(at, innermost_first[i]) : 0;
    cut = next == 0;
    if (each != nullptr) each[i] = next;
    if (!cut) at = next;
    if (cut && each == nullptr) break;
  }
  if (cut) impl->Refuse();
  impl->Leave();
  return at;
}

uint32_t StackTable::size() const {
  const Impl* impl = impl_.load(std::memory_order_acquire);
  return impl != nullptr ? impl->nodes_used.load(std::memory_order_acquire) : 0;
}

uint32_t StackTable::site_count() const {
  const Impl* impl = impl_.load(std::memory_order_acquire);
  return impl != nullptr ? impl->sites_used.load(std::memory_order_acquire) : 0;
}

StackTable::Node StackTable::node(StackId id) const {
  return impl_.load(std::memory_order_acquire)->storage->nodes[id - 1];
}

Site StackTable::site(SiteId id) const {
  const Impl* impl = impl_.load(std::memory_order_acquire);
  const Impl::StoredSite& site = impl->storage->sites[id - 1];
  return {impl->ViewOf(site.file), impl->ViewOf(site.function), site.line};
}

uint64_t StackTable::refused() const {
  const Impl* impl = impl_.load(std::memory_order_acquire);
  return impl != nullptr ? impl->refused.load(std::memory_order_relaxed) : 0;
}

uint64_t StackTable::generation() const {
  const Impl* impl = impl_.load(std::memory_order_acquire);
  return impl != nullptr ? impl->generation.load(std::memory_order_acquire) : 0;
}

}  // namespace trainperf
