// Functions that programs get when they ask for the driver's, by dlsym or by cuGetProcAddress. For
// cuGetProcAddress, the driver answers first, at the version asked for, and then its answer is replaced.
#include <string_view>

#include "allocator/interpose/driver.h"
#include "allocator/interpose/process.h"
#include "allocator/interpose/replacements.h"

namespace stowage::interpose {
namespace {

// Returns the driver's answer to the entry's own name and version; null if it has none.
void* driver_answer(Entry entry) {
  const EntryPoint& point = entry_point(entry);
  const cuuint64_t flags =
      point.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  void* function = nullptr;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (real_function(Entry::get_proc_address) != nullptr) {
    CUdriverProcAddressQueryResult status{};
    result = call_real<decltype(cuGetProcAddress_v2)>(Entry::get_proc_address, point.name, &function,
                                                      point.version, flags, &status);
  } else {
    result = call_real<decltype(cuGetProcAddress)>(Entry::get_proc_address_v1, point.name, &function,
                                                   point.version, flags);
  }
  return result == CUDA_SUCCESS ? function : nullptr;
}

// Returns the first entry of that name for which `fits` is true.
template <class Fits>
Entry find_named(std::string_view name, Fits fits) {
  for (std::size_t i = 0; i < replaced_count; ++i) {
    const auto entry = static_cast<Entry>(i);
    if (name == entry_point(entry).name && fits(entry)) return entry;
  }
  return Entry::count;
}

// `found`: the driver's answer to `name` at `version`. The answer is replaced if the driver gives the same
// function at the version whose signature the replacement has. A function of a newer signature stays; the
// record says so, since it may allocate unseen.
void* substitute_answer(const char* name, void* found, int version) {
  // The driver may also give out a function that it does not export.
  const auto exported = [&](Entry entry) { return found == real_function(entry); };
  const auto answered = [&](Entry entry) { return found == driver_answer(entry); };
  Entry entry = find_named(name, exported);
  if (entry == Entry::count) entry = find_named(name, answered);
  if (entry != Entry::count) {
    remember_real(entry, found);
    return replacement(entry);
  }
  const bool newer = find_named(name, [&](Entry known) {
                       return entry_point(known).allocates && version >= entry_point(known).version;
                     }) != Entry::count;
  if (newer) ledger().note("missed", static_cast<std::uint64_t>(version), name);
  return found;
}

CUresult replace_answer(CUresult result, const char* symbol, void** function, int version) {
  if (result == CUDA_SUCCESS && *function != nullptr)
    *function = substitute_answer(symbol, *function, version);
  return result;
}

}  // namespace

void* substitute_symbol(const char* symbol, void* found) {
  const Entry entry = replaced_symbol(symbol);
  if (entry == Entry::count || found == replacement(entry) || !in_driver(found)) return found;
  remember_real(entry, found);
  return replacement(entry);
}

}  // namespace stowage::interpose

using stowage::interpose::call_real;
using stowage::interpose::Entry;
using stowage::interpose::Outermost;
using stowage::interpose::replace_answer;

extern "C" {

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result =
      call_real<decltype(cuGetProcAddress)>(Entry::get_proc_address_v1, symbol, function, version, flags);
  return outermost ? replace_answer(result, symbol, function, version) : result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuGetProcAddress_v2)>(Entry::get_proc_address, symbol, function,
                                                                   version, flags, status);
  return outermost ? replace_answer(result, symbol, function, version) : result;
}
}
