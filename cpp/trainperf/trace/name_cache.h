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
  static constexpr size_t kSlots = 2048;

  // Names of different kinds are different names. The result holds until the next Put().
  Value* Find(uint8_t kind, std::string_view name) {
    hash_ = Hash(kind, name);
    if (slots_.empty()) slots_.resize(kSlots);
    for (size_t i = 0; i < 2; ++i) {
      Slot& slot = slots_[Pair(hash_) + i];
      if (slot.hash == hash_ && slot.kind == kind && slot.name == name) return &slot.value;
    }
    return nullptr;
  }
  // What Find() has just not found.
  Value* Put(uint8_t kind, std::string_view name, Value value) {
    Slot& first = slots_[Pair(hash_)];
    std::swap(first, slots_[Pair(hash_) + 1]);  // the older of the two goes
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

  static size_t Pair(uint64_t hash) { return (hash >> 40) % kSlots & ~size_t{1}; }

  static uint64_t Word(const char* from) {
    uint64_t word = 0;
    std::memcpy(&word, from, sizeof(word));
    return word;
  }
  // Four chains of multiplications at once: names of kernels are long. Whoever makes names of equal hashes only gets a
  // cache that does not help.
  static uint64_t Hash(uint8_t kind, std::string_view name) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    constexpr size_t kWord = sizeof(uint64_t);
    const size_t size = name.size();
    const char* const text = name.data();
    uint64_t lanes[4] = {size << 8 | kind, 1, 2, 3};
    size_t at = 0;
    for (; at + 4 * kWord <= size; at += 4 * kWord) {
      for (size_t i = 0; i < 4; ++i) lanes[i] = (lanes[i] ^ Word(text + at + i * kWord)) * kOdd;
    }
    for (size_t i = 0; at + kWord <= size; at += kWord, ++i) lanes[i] = (lanes[i] ^ Word(text + at)) * kOdd;
    uint64_t rest = 0;
    if (size >= kWord) {
      rest = Word(text + size - kWord);
    } else {
      for (; at < size; ++at) rest = rest << 8 | static_cast<unsigned char>(text[at]);
    }
    uint64_t hash = rest * kOdd;
    for (const uint64_t lane : lanes) hash = ((hash ^ hash >> 31) + lane) * kOdd;
    return hash | 1;
  }

  std::vector<Slot> slots_;
  uint64_t hash_ = 0;  // of what Find() was last asked
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_NAME_CACHE_H_
