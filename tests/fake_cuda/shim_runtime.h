// What kernels compiled through shim.h ask of whoever runs them.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

// Where the running thread stands. One for each thread of the process, so that streams run side by side.
struct StowageShimPosition {
  uint3 thread, block, block_size, grid_size;
};

extern "C" {
extern __thread StowageShimPosition stowage_shim_position __attribute__((tls_model("initial-exec")));
void* stowage_shim_dynamic_shared();
void stowage_shim_sync_threads();
void stowage_shim_sync_warp();
// What lane `source` of the calling thread's warp passed in; its own value where no such lane is.
std::uint64_t stowage_shim_shuffle(std::uint64_t value, unsigned source);
unsigned stowage_shim_lane();
// `run` calls the kernel for the current thread; args[i] points to argument i, of sizes[i] bytes.
// `sizes` must live on.
void stowage_shim_register_kernel(const char* mangled_name, void (*run)(void** args),
                                  const std::size_t* sizes, std::size_t count);
}
