// What was lately learned of names: of each event's name something is asked, and a trace has a few hundred of them. It
// forgets a name when another one needs its place; so whoever asks must be able to learn it anew.
//
//   NameCache<Known> cache;
//   Known* known = cache.Find(kind, name);                 // nullptr: not known (any more)
//   if (known == nullptr) known = cache.Put(kind, name, Learn(name));
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_NAME_CACHE_H_
#define TRAINPERF_TRACE_NAME_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainperf {

template <typename Value>
class NameCache {
 public:
  static constexpr size_t kSlots = 4096;

  // Names of different kinds are different names. The result holds until the next Put().
  Value* Find(uint8_t kind, std::string_view name) {
    hash_ = Hash(kind, name);
    if (slots_.empty()) slots_.resize(kSlots);
    for (const size_t place : {Place(hash_), Place(hash_) ^ 1}) {
      Slot& slot = slots_[place];
      if (slot.hash == hash_ && slot.kind == kind && slot.name == name) return &slot.value;
    }
    return nullptr;
  }
  // What Find() has just not found.
  Value* Put(uint8_t kind, std::string_view name, Value value) {
    Slot& first = slots_[Place(hash_)];
    Slot& second = slots_[Place(hash_) ^ 1];
    if (first.hash != 0) std::swap(first, second);  // the older of the two goes
    first.hash = hash_;
    first.kind = kind;
    first.name.assign(name);
    first.value = std::move(value);
    return &first.value;
  }

 private:
  struct Slot {
    uint64_t hash = 0;  // 0: empty
    std::string name;
    Value value{};
    uint8_t kind = 0;
  };

  static size_t Place(uint64_t hash) { return (hash >> 40) % kSlots; }

  // Whoever makes names of equal hashes only gets a cache that does not help.
  static uint64_t Hash(uint8_t kind, std::string_view name) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    uint64_t hash = (name.size() << 8 | kind) * kOdd;
    const char* p = name.data();
    size_t left = name.size();
    const auto mix = [&hash](const char* from, size_t size) {
      uint64_t word = 0;
      std::memcpy(&word, from, size);
      hash = (hash ^ word) * kOdd;
      hash ^= hash >> 29;
    };
    for (; left >= sizeof(uint64_t); p += sizeof(uint64_t), left -= sizeof(uint64_t)) mix(p, sizeof(uint64_t));
    if (left > 0) mix(p, left);
    return hash | 1;
  }

  std::vector<Slot> slots_;
  uint64_t hash_ = 0;  // of what Find() was last asked
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_NAME_CACHE_H_
