#include "trainperf/cpython/code_cache.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "trainperf/cpython/field.h"
#include "trainperf/cpython/line_table.h"
#include "trainperf/cpython/offsets.h"

namespace trainperf {
namespace {

constexpr int64_t kLongestText = 1 << 20;  // more than that is not a name but torn memory
constexpr uint64_t kSmallestPage = 4096;
constexpr uint64_t kMostInOneRead = 512;  // most line tables, and nearly all names

size_t AppendUtf8(uint32_t c, char* to) {
  if (c < 0x80) {
    to[0] = static_cast<char>(c);
    return 1;
  }
  const int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  const uint8_t lead = tail == 1 ? 0xC0 : tail == 2 ? 0xE0 : 0xF0;
  to[0] = static_cast<char>(lead | (c >> (6 * tail)));
  for (int i = 1; i <= tail; ++i) to[i] = static_cast<char>(0x80 | ((c >> (6 * (tail - i))) & 63));
  return static_cast<size_t>(tail) + 1;
}

// Undecodable bytes of a file's name are lone surrogates in a str, which UTF-8 has not: '?' in our files.
uint32_t Encodable(uint32_t c) { return (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF ? '?' : c; }

// From 3.12 on each entry of the eval loop has a frame of its own, which for a moment looks as if it ran Python code.
bool IsTrampoline(std::string_view file) { return file == "<shim>"; }

}  // namespace

CodeCache::CodeCache()
    : entries_(kEntries), copies_(ProcessMemory::kMaxPieces * kLargestCode), scratch_(kLargestTable) {}

void CodeCache::ForgetIfTableWasReset() {
  const uint64_t generation = StackTable::Get().generation();
  if (generation == generation_) return;
  for (size_t i = 0; i < kEntries; ++i) entries_[i].code = 0;
  generation_ = generation;
}

bool CodeCache::Resolve(const ProcessMemory& memory, const CodePosition* positions, size_t count, SiteId* sites) {
  ForgetIfTableWasReset();
  iovec pieces[ProcessMemory::kMaxPieces];
  const auto size = static_cast<size_t>(tp_python_offsets.code_read_size);
  if (count > ProcessMemory::kMaxPieces || size > kLargestCode) return false;
  for (size_t i = 0; i < count; ++i) pieces[i] = {reinterpret_cast<void*>(positions[i].code), size};
  if (memory.ReadPieces(pieces, count, copies_.get()) != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!ResolveOne(memory, positions[i], copies_.get() + i * size, &sites[i])) return false;
  }
  return true;
}

bool CodeCache::ResolveOne(const ProcessMemory& memory, const CodePosition& position, const char* copy, SiteId* site) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  const uint64_t code_type = reinterpret_cast<uint64_t>(TpCodeTypeAddress()) + memory.shift();
  if (At<uint64_t>(copy, offsets.object_type) != code_type || TpObjectIsInUse(copy) == 0) return false;
  int64_t offset = 0;
  if (!OffsetOf(memory, position, copy, &offset)) return false;
  const auto identity_size = static_cast<size_t>(offsets.code_identity_end - offsets.code_identity);
  const uint64_t identity =
      std::hash<std::string_view>()({copy + offsets.code_identity, identity_size}) ^ memory.shift();

  Entry& entry = entries_[(position.code * 0x9E3779B97F4A7C15ull) >> 54];
  static_assert(kEntries == size_t{1} << (64 - 54));
  if (entry.code != position.code || entry.identity != identity) {
    entry = Entry{};
    entry.code = position.code;
    entry.identity = identity;
  }
  auto& memo = entry.memo[(static_cast<uint64_t>(offset) >> 1) % kMemo];
  if (memo.site == 0 || memo.offset != offset) {
    const int32_t line = LineOf(memory, copy, offset);
    SiteId made = 0;
    if (entry.any_site != 0) {
      const Site known = StackTable::Get().site(entry.any_site);
      if (!IsStillThere(memory, position.code, copy)) return false;
      made = StackTable::Get().InternSite(known.file, known.function, line);
    } else {
      char file[StackTable::kMaxName + 4], function[StackTable::kMaxName + 4];
      size_t file_size = 0, function_size = 0;
      if (!ReadText(memory, At<uint64_t>(copy, offsets.code_filename), true, file, &file_size) ||
          !ReadText(memory, At<uint64_t>(copy, offsets.code_name), false, function, &function_size) ||
          !IsStillThere(memory, position.code, copy) || IsTrampoline({file, file_size})) {
        entry.code = 0;
        return false;
      }
      made = StackTable::Get().InternSite({file, file_size}, {function, function_size}, line);
    }
    if (made == 0) return false;  // the table is full or busy
    entry.any_site = made;
    memo.offset = static_cast<int32_t>(offset);
    memo.site = made;
  }
  *site = memo.site;
  return true;
}

// In bytes, from the code's first instruction. Of a thread's own copy of the bytecode (free-threaded 3.14 on): false
// when that lies elsewhere by now.
bool CodeCache::OffsetOf(const ProcessMemory& memory, const CodePosition& position, const char* copy, int64_t* offset) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  if (offsets.frame_instr_is_index) {
    *offset = static_cast<int64_t>(position.instruction) * 2;
    return true;
  }
  if (position.bytecode == 0) {
    *offset = static_cast<int64_t>(position.instruction - position.code) - offsets.code_instructions;
    return true;
  }
  const auto all = At<uint64_t>(copy, offsets.code_tlbc);  // how many copies there are, and then each
  const auto at = static_cast<uint64_t>(position.bytecode);
  uint64_t count_and_own[2] = {};
  iovec pieces[2] = {{reinterpret_cast<void*>(all), sizeof(uint64_t)},
                     {reinterpret_cast<void*>(all + (1 + at) * sizeof(uint64_t)), sizeof(uint64_t)}};
  if (position.bytecode < 0 || memory.ReadPieces(pieces, 2, count_and_own) != 2 || at >= count_and_own[0]) return false;
  *offset = static_cast<int64_t>(position.instruction - count_and_own[1]);
  return *offset >= 0 && *offset < At<int64_t>(copy, offsets.bytes_size) * 2;
}

// Whether what `copy` was made of still is the same code object, so that what its pointers led to was its own.
bool CodeCache::IsStillThere(const ProcessMemory& memory, uint64_t code, const char* copy) {
  char now[kLargestCode];
  const auto size = static_cast<size_t>(tp_python_offsets.code_read_size);
  const auto from = static_cast<size_t>(tp_python_offsets.code_identity);
  const auto end = static_cast<size_t>(tp_python_offsets.code_identity_end);
  return memory.Read(code, now, size) && TpObjectIsInUse(now) != 0 &&
         std::memcmp(now + from, copy + from, end - from) == 0;
}

// The first bytes of an object into scratch_, and of what follows them as much as is sure to be mapped with them:
// mostly all of it, in one system call. How much; 0 when it cannot be read.
size_t CodeCache::ReadWithMore(const ProcessMemory& memory, uint64_t address, size_t least) {
  const uint64_t page_end = (address + least + kSmallestPage - 1) / kSmallestPage * kSmallestPage;
  const size_t size = std::max<size_t>(least, std::min<uint64_t>(kMostInOneRead, page_end - address));
  return memory.Read(address, scratch_.get(), size) ? size : 0;
}

// A frame that has not begun, or a table that is torn or very long, gives the line of the function itself.
int32_t CodeCache::LineOf(const ProcessMemory& memory, const char* copy, int64_t offset) {
  const TpPythonOffsets& offsets = tp_python_offsets;
  const auto first_line = At<int32_t>(copy, offsets.code_first_line);
  const auto table = At<uint64_t>(copy, offsets.code_linetable);
  const auto data = static_cast<size_t>(offsets.bytes_data);
  const size_t got = ReadWithMore(memory, table, data);
  if (got == 0) return first_line;
  const auto size = At<int64_t>(scratch_.get(), offsets.bytes_size);
  if (size <= 0) return first_line;
  const size_t wanted = std::min<size_t>(static_cast<size_t>(size), kLargestTable);
  const char* lines = scratch_.get() + data;
  if (data + wanted > got) {
    lines = scratch_.get();
    if (!memory.Read(table + data, scratch_.get(), wanted)) return first_line;
  }
  const auto format = offsets.linetable_is_pep626_pairs ? LineTableFormat::kPairs : LineTableFormat::kLocations;
  const int32_t line =
      LineAt(format, reinterpret_cast<const uint8_t*>(lines), wanted, first_line, std::max<int64_t>(offset, 0));
  return line >= 0 ? line : first_line;
}

// A str as UTF-8, at most StackTable::kMaxName bytes of it.
bool CodeCache::ReadText(const ProcessMemory& memory, uint64_t address, bool keep_end, char* to, size_t* size) {
  const auto header_size = static_cast<size_t>(tp_python_offsets.unicode_read_size);
  int64_t length = 0;
  int kind = 0, data = 0;
  const size_t got = ReadWithMore(memory, address, header_size);
  if (got == 0 || TpObjectIsInUse(scratch_.get()) == 0) return false;
  if (TpUnicodeLayout(scratch_.get(), &length, &kind, &data) == 0 || length > kLongestText) return false;
  const auto fits = static_cast<int64_t>(StackTable::kMaxName / (kind == 1 ? 1 : 2));
  const int64_t taken = std::min(length, fits);
  const int64_t first = keep_end ? length - taken : 0;
  const size_t from = static_cast<size_t>(data) + static_cast<size_t>(first * kind);
  const auto bytes = static_cast<size_t>(taken * kind);
  const char* text = scratch_.get() + from;
  if (from + bytes > got) {
    text = scratch_.get();
    if (!memory.Read(address + from, scratch_.get(), bytes)) return false;
  }
  *size = 0;
  for (int64_t i = 0; i < taken && *size < StackTable::kMaxName; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, text + i * kind, static_cast<size_t>(kind));
    *size += AppendUtf8(Encodable(c), to + *size);
  }
  return true;
}

}  // namespace trainperf
