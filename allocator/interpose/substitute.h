// Which function a program gets when it asks for one of the driver's.
#pragma once

#include <cuda.h>

namespace stowage::interpose {

// `found`: what dlsym found under `symbol`. A function of another library stays what it is.
void* substitute_symbol(const char* symbol, void* found);

// `found`: what the driver's cuGetProcAddress answered to `name` at `version`. It is replaced where the
// driver gives the same function at the version whose signature the replacement has. A function of a newer
// signature stays; the record says so, since it may allocate unseen.
void* substitute_answer(const char* name, void* found, int version);

}  // namespace stowage::interpose
