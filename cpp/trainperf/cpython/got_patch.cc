#include "trainperf/cpython/got_patch.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobDat = R_X86_64_GLOB_DAT, kAbsolute = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobDat = R_AARCH64_GLOB_DAT, kAbsolute = R_AARCH64_ABS64;
#else
constexpr uint32_t kJumpSlot = 0, kGlobDat = 0, kAbsolute = 0;
#endif

struct Object {
  uintptr_t anchor = 0;
  uintptr_t base = 0;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  const ElfW(Dyn) * dynamic = nullptr;
};

int FindObject(dl_phdr_info* info, size_t, void* data) {
  Object* object = static_cast<Object*>(data);
  Object found = *object;
  found.base = info->dlpi_addr;
  found.begin = UINTPTR_MAX;
  found.end = 0;
  bool holds_anchor = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    const uintptr_t end = begin + header.p_memsz;
    if (header.p_type == PT_DYNAMIC) found.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    if (header.p_type != PT_LOAD) continue;
    found.begin = begin < found.begin ? begin : found.begin;
    found.end = end > found.end ? end : found.end;
    holds_anchor = holds_anchor || (object->anchor >= begin && object->anchor < end);
  }
  if (!holds_anchor) return 0;
  *object = found;
  return 1;
}

// The loader has relocated these pointers in glibc, and has not in musl and the vDSO.
uintptr_t Relocated(const Object& object, uintptr_t pointer) {
  return pointer < object.base ? object.base + pointer : pointer;
}

std::vector<void**> SlotsOf(const Object& object, const char* symbol) {
  uintptr_t jump = 0, rela = 0, symbols = 0, strings = 0;
  size_t jump_size = 0, rela_size = 0;
  for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_JMPREL:
        jump = Relocated(object, entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        jump_size = entry->d_un.d_val;
        break;
      case DT_RELA:
        rela = Relocated(object, entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        rela_size = entry->d_un.d_val;
        break;
      case DT_SYMTAB:
        symbols = Relocated(object, entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        strings = Relocated(object, entry->d_un.d_ptr);
        break;
      default:
        break;
    }
  }
  std::vector<void**> slots;
  if (symbols == 0 || strings == 0) return slots;
  const auto* symbol_table = reinterpret_cast<const ElfW(Sym)*>(symbols);
  const auto* names = reinterpret_cast<const char*>(strings);
  const auto scan = [&](uintptr_t table, size_t size) {
    const auto* entries = reinterpret_cast<const ElfW(Rela)*>(table);
    for (size_t i = 0; table != 0 && i < size / sizeof(ElfW(Rela)); ++i) {
      const uint32_t type = ELF64_R_TYPE(entries[i].r_info);
      if (type != kJumpSlot && type != kGlobDat && !(type == kAbsolute && entries[i].r_addend == 0)) continue;
      const ElfW(Sym)& target = symbol_table[ELF64_R_SYM(entries[i].r_info)];
      if (std::strcmp(names + target.st_name, symbol) != 0) continue;
      slots.push_back(reinterpret_cast<void**>(object.base + entries[i].r_offset));
    }
  };
  scan(jump, jump_size);
  scan(rela, rela_size);
  return slots;
}

// The protection of the mapping that holds `address`; -1 when it cannot be told. Read, not guessed: the loader rounds
// the end of RELRO down, so the page may well be writable.
int ProtectionOf(uintptr_t address) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return -1;
  int protection = -1;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, maps) > 0) {
    uintptr_t begin = 0, end = 0;
    char flags[8] = "";
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, flags) != 3) continue;
    if (address < begin || address >= end) continue;
    protection =
        (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) | (flags[2] == 'x' ? PROT_EXEC : 0);
    break;
  }
  free(line);
  fclose(maps);
  return protection;
}

void* Load(void** slot) { return __atomic_load_n(slot, __ATOMIC_ACQUIRE); }

// A slot that was patched once. Kept for good: a few, whatever the number of installations.
struct Patched {
  void** slot;
  void* replacement;
  void* before;  // ours came
  bool buried;   // below another tool's patch, when ours was to be taken out
};

std::vector<Patched>& AllPatched() {
  static auto* const all = new std::vector<Patched>();
  return *all;
}

Patched* Find(void** slot, void* replacement) {
  for (Patched& patched : AllPatched()) {
    if (patched.slot == slot && patched.replacement == replacement) return &patched;
  }
  return nullptr;
}

// Made before a slot is written, so that the destructor needs no memory.
void Remember(void** slot, void* replacement, void* before) {
  Patched* known = Find(slot, replacement);
  if (known == nullptr) known = &AllPatched().emplace_back();
  *known = {slot, replacement, before, false};
}

}  // namespace

absl::Status GotPatch::Write(void** slot, void* value) {
  const int protection = ProtectionOf(reinterpret_cast<uintptr_t>(slot));
  if (protection < 0) return absl::UnavailableError("the protection of CPython's import table cannot be read");
  const bool writable = (protection & PROT_WRITE) != 0;
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_size - 1));
  if (!writable && mprotect(page, page_size, protection | PROT_WRITE) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("CPython's import table is write-protected: ", strerror(errno)));
  }
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  // A page left writable would be safe but less protected than we found it: nothing to be done about a failure here.
  if (!writable) (void)mprotect(page, page_size, protection);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GotPatch>> GotPatch::Install(const void* anchor, const char* symbol, void* replacement,
                                                            void* fallback) {
  if (kJumpSlot == 0) return absl::UnimplementedError("import tables of this processor's ELF files are not known");
  Object object;
  object.anchor = reinterpret_cast<uintptr_t>(anchor);
  if (dl_iterate_phdr(&FindObject, &object) == 0 || object.dynamic == nullptr) {
    return absl::NotFoundError("the ELF object to patch is not dynamically linked");
  }
  const std::vector<void**> addresses = SlotsOf(object, symbol);
  if (addresses.empty()) {
    return absl::NotFoundError(absl::StrCat("CPython's import table has no ", symbol, " (a statically linked libc?)"));
  }
  for (void** address : addresses) {
    const Patched* known = Find(address, replacement);
    const void* value = Load(address);
    if (known == nullptr || !known->buried) continue;
    if (value == replacement || value == fallback || value == known->before) continue;  // it was given back
    return absl::FailedPreconditionError(
        absl::StrCat("another tool patched CPython's ", symbol,
                     " while an earlier watch's hook was in it, and may still call that"));
  }
  std::unique_ptr<GotPatch> patch(new GotPatch());
  patch->replacement_ = replacement;
  patch->fallback_ = patch->original_ = fallback;
  for (void** address : addresses) {
    void* before = Load(address);
    // A later patcher gave back what it had found: our replacement, from an installation that is gone.
    if (before == replacement) before = fallback;
    const auto target = reinterpret_cast<uintptr_t>(before);
    // A slot that points into its own object is not bound yet: it leads to the dynamic linker, through which calls must
    // not be passed on, since it would overwrite our patch.
    if (target < object.begin || target >= object.end) patch->original_ = before;
    Remember(address, replacement, before);
    const absl::Status status = Write(address, replacement);
    if (!status.ok()) return status;  // the destructor puts back those already written
    patch->slots_.push_back({address, before});
  }
  return patch;
}

GotPatch::~GotPatch() {
  for (const Slot& slot : slots_) {
    if (const void* now = Load(slot.address); now != replacement_) {  // another patcher's by now, who passes on to us
      Patched* const patched = Find(slot.address, replacement_);
      if (patched != nullptr) patched->buried = now != fallback_ && now != slot.before;
      continue;
    }
    if (!Write(slot.address, slot.before).ok()) continue;  // our code stays loaded and passes on
  }
}

bool GotPatch::in_place() const {
  for (const Slot& slot : slots_) {
    if (Load(slot.address) != replacement_) return false;
  }
  return true;
}

void GotPatch::Reassert() {
  for (const Slot& slot : slots_) {
    if (Load(slot.address) == fallback_ && slot.before != fallback_) (void)Write(slot.address, replacement_);
  }
}

}  // namespace trainperf
