// A library that is opened with RTLD_DEEPBIND: linked with the driver, or looking it up by itself.
#include <cuda.h>
#include <dlfcn.h>

#include "tests/allocator/interpose/programs/expectation.h"

#ifdef LOOKS_UP
namespace {

template <class Function>
Function* found(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace
#endif

extern "C" void use_the_driver() {
  CUdeviceptr address = 0;
#ifdef LOOKS_UP
  auto* const allocate = found<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2");
  auto* const release = found<decltype(cuMemFree_v2)>("cuMemFree_v2");
#else
  auto* const allocate = &cuMemAlloc_v2;
  auto* const release = &cuMemFree_v2;
#endif
  require(allocate(&address, 700) == CUDA_SUCCESS, "the plugin allocates");
  asked("device", 700);
  require(release(address) == CUDA_SUCCESS, "the plugin frees");
  require(dlsym(RTLD_DEFAULT, "use_the_driver") != nullptr, "RTLD_DEFAULT sees what its caller sees");
}
