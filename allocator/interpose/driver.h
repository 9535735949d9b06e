// The real driver: where its functions are, and which calls are its own.
#pragma once

#include <string_view>

#include "allocator/interpose/entry_points.h"

namespace stowage::interpose {

// The loader's own dlsym, not the one that this library exports: its address, and a call of it.
void* loader_dlsym();
void* real_dlsym(void* library, const char* symbol);

// Whether `code` is in libcuda, as far as it is loaded.
bool in_driver(const void* code);

// The driver's function; null where no driver is loaded, or it has none of that name.
void* real_function(Entry entry);
// For a function that the driver gives out but does not export. One that is known stays.
void remember_real(Entry entry, void* function);

// What to call where the real function is missing: fails with the reason.
CUresult missing_function();

template <class Function>
Function* real(Entry entry) {
  return reinterpret_cast<Function*>(real_function(entry));
}

// The result of the driver's function.
template <class Function, class... Arguments>
CUresult call_real(Entry entry, Arguments... arguments) {
  Function* const function = real<Function>(entry);
  return function == nullptr ? missing_function() : function(arguments...);
}

// What stands in the place of `entry`.
void* replacement(Entry entry);

// Set while a thread is in a function of the driver that was called from here: what that calls is not the
// program's.
class Outermost {
 public:
  // `caller`: an address in the code that called.
  explicit Outermost(const void* caller);
  ~Outermost();
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;
  explicit operator bool() const { return outermost_; }

 private:
  bool outermost_;
};

}  // namespace stowage::interpose
