// The header under nvcc, and the concepts of the toolkit's CCCL.
#include "stowage/cuda_memory_resource.h"

static_assert(cuda::mr::resource<stowage::CudaMemoryResource>);
static_assert(cuda::mr::async_resource<stowage::CudaMemoryResource>);
static_assert(cuda::mr::async_resource_with<stowage::CudaMemoryResource, cuda::mr::device_accessible>);
