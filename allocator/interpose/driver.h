// The real driver: where its functions are, and which calls are its own.
#pragma once

#include <string_view>

#include "allocator/interpose/entry_points.h"

namespace stowage::interpose {

// Return the address of, and call, the loader's own dlsym, not the one that this library exports.
void* loader_dlsym();
void* real_dlsym(void* library, const char* symbol);

// Returns true if `code` lies in a loaded libcuda.
bool in_driver(const void* code);

// Returns the driver's function; null if no driver is loaded, or it has none of that name.
void* real_function(Entry entry);
// Keeps a function that the driver gives out but does not export, unless one is known.
void remember_real(Entry entry, void* function);

// Stands for a real function that is missing: fails with the reason.
CUresult missing_function();

template <class Function>
Function* real(Entry entry) {
  return reinterpret_cast<Function*>(real_function(entry));
}

// Returns the result of the driver's function.
template <class Function, class... Arguments>
CUresult call_real(Entry entry, Arguments... arguments) {
  Function* const function = real<Function>(entry);
  return function == nullptr ? missing_function() : function(arguments...);
}

// Returns the function that stands in the place of `entry`.
void* replacement(Entry entry);
// Returns what a program gets that looked `symbol` up with dlsym, where `found` is: the replacement of a
// function of the driver; a function of another library stays what it is.
void* substitute_symbol(const char* symbol, void* found);

// True for a call that the program made: false while the thread is in a function of the driver that was
// called from here.
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
