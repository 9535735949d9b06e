// The loader's auditor (rtld-audit(7)): a reference to a function of libcuda that libstowage_preload.so
// replaces is bound to the replacement, however it is looked up. The auditor catches libraries opened with
// RTLD_DEEPBIND, which search the libraries that they are linked with before preloaded ones.
//
// It lives in a namespace of the loader's own and uses no library at all, not even libc's.
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr const char* driver_name = "libcuda.so.1";
constexpr const char* replacing_name = "libstowage_preload.so";

std::atomic<const link_map*> replacing = nullptr;

bool equal(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

// Returns the address in an entry of the dynamic section, which some loaders leave relative; 0 without it.
ElfW(Addr) dynamic_address(const link_map* object, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = object->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != tag) continue;
    const ElfW(Addr) address = entry->d_un.d_ptr;
    return address < object->l_addr ? address + object->l_addr : address;
  }
  return 0;
}

template <class T>
const T* at(ElfW(Addr) address) {
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool has_soname(const link_map* object, const char* name) {
  const auto strings = dynamic_address(object, DT_STRTAB);
  if (strings == 0) return false;
  for (const ElfW(Dyn)* entry = object->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SONAME) return equal(at<char>(strings) + entry->d_un.d_val, name);
  }
  return false;
}

// Returns the number of symbols in the table, read from the old-style hash table that the
// library is linked with.
std::uint32_t symbol_count(const link_map* object) {
  const auto hash = dynamic_address(object, DT_HASH);
  return hash == 0 ? 0 : at<std::uint32_t>(hash)[1];
}

// Returns the address of the function that the library exports as `name`; 0 if there is none.
ElfW(Addr) exported(const link_map* object, const char* name) {
  const auto* const symbols = at<ElfW(Sym)>(dynamic_address(object, DT_SYMTAB));
  const char* const strings = at<char>(dynamic_address(object, DT_STRTAB));
  for (std::uint32_t i = 1; i < symbol_count(object); ++i) {
    const ElfW(Sym)& symbol = symbols[i];
    if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
        equal(strings + symbol.st_name, name)) {
      return object->l_addr + symbol.st_value;
    }
  }
  return 0;
}

// Cookies, by which the loader names objects to this auditor.
enum : std::uintptr_t { other, driver, replacer };

}  // namespace

extern "C" {

unsigned la_version(unsigned version) { return version < LAV_CURRENT ? version : LAV_CURRENT; }

unsigned la_objopen(link_map* object, Lmid_t space, std::uintptr_t* cookie) {
  *cookie = other;
  if (space != LM_ID_BASE) return 0;
  if (has_soname(object, driver_name)) *cookie = driver;
  if (has_soname(object, replacing_name)) {
    *cookie = replacer;
    replacing.store(object, std::memory_order_release);
  }
  return *cookie == driver ? LA_FLG_BINDTO | LA_FLG_BINDFROM : LA_FLG_BINDFROM;
}

std::uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned, std::uintptr_t* from, std::uintptr_t* to, unsigned*,
                            const char* name) {
  const link_map* const object = replacing.load(std::memory_order_acquire);
  // References in the replacements themselves, and in the driver, keep the driver's functions.
  if (object == nullptr || *from != other || *to != driver) return symbol->st_value;
  const ElfW(Addr) address = exported(object, name);
  return address == 0 ? symbol->st_value : address;
}
}
