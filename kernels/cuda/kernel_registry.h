// Names every kernel instantiation that can be launched, once, at the end of its file:
//
//   STOWAGE_CUDA_KERNEL(add_kernel<float>);
//
// nvcc only checks that there is such a kernel. Tests that compile the same file as C++ have a shim that
// defines the macro first: it registers the kernel by its mangled name, so that a fake CUDA runtime can
// run it.
#pragma once

#include <type_traits>

#ifndef STOWAGE_CUDA_KERNEL
#define STOWAGE_CUDA_KERNEL(...) static_assert(std::is_pointer_v<decltype(&__VA_ARGS__)>)
#endif
