// The CUDA runtime's memory calls, over whichever libcuda.so.1 the loader finds. The driver's functions are
// found as the real runtime of CUDA 13 finds them: dlopen, dlsym of cuGetProcAddress_v2, then a query for
// each, at the same version and with the same flags. Built as a static library, and as a libcudart.so.13.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

extern "C" {
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream);
}

namespace {

using GetProcAddress = decltype(cuGetProcAddress_v2);

GetProcAddress* find_get_proc_address() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr
                           : reinterpret_cast<GetProcAddress*>(dlsym(driver, "cuGetProcAddress_v2"));
}

void* query(const char* name, int version, cuuint64_t flags) {
  static GetProcAddress* const ask = find_get_proc_address();
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (ask == nullptr || ask(name, &function, version, flags, &status) != CUDA_SUCCESS) std::abort();
  return function;
}

// One function of the driver.
template <class Function>
class Driver {
 public:
  Driver(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT)
      : function_(reinterpret_cast<Function*>(query(name, version, flags))) {}
  template <class... Arguments>
  cudaError_t operator()(Arguments... arguments) const {
    return static_cast<cudaError_t>(function_(arguments...));  // both number errors alike
  }

 private:
  Function* function_;
};

CUdeviceptr to_address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUdeviceptr* to_address(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  static const Driver<decltype(cuMemAlloc_v2)> driver("cuMemAlloc", 3020);
  return driver(to_address(address), bytes);
}

cudaError_t cudaFree(void* address) {
  static const Driver<decltype(cuMemFree_v2)> driver("cuMemFree", 3020);
  return driver(to_address(address));
}

cudaError_t cudaMallocPitch(void** address, std::size_t* pitch, std::size_t width, std::size_t height) {
  static const Driver<decltype(cuMemAllocPitch_v2)> driver("cuMemAllocPitch", 3020);
  return driver(to_address(address), pitch, width, height, 4U);
}

cudaError_t cudaMallocManaged(void** address, std::size_t bytes, unsigned flags) {
  static const Driver<decltype(cuMemAllocManaged)> driver("cuMemAllocManaged", 6000);
  return driver(to_address(address), bytes, flags);
}

cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  static const Driver<decltype(cuMemAllocAsync)> driver("cuMemAllocAsync", 11020);
  return driver(to_address(address), bytes, stream);
}

cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream) {
  static const Driver<decltype(cuMemAllocAsync)> driver("cuMemAllocAsync", 11020,
                                                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  return driver(to_address(address), bytes, stream);
}

cudaError_t cudaMallocFromPoolAsync(void** address, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  static const Driver<decltype(cuMemAllocFromPoolAsync)> driver("cuMemAllocFromPoolAsync", 11020);
  return driver(to_address(address), bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  static const Driver<decltype(cuMemFreeAsync)> driver("cuMemFreeAsync", 11020);
  return driver(to_address(address), stream);
}

cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream) {
  static const Driver<decltype(cuMemFreeAsync)> driver("cuMemFreeAsync", 11020,
                                                       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  return driver(to_address(address), stream);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* props) {
  static const Driver<decltype(cuMemPoolCreate)> driver("cuMemPoolCreate", 11020);
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  CUmemPoolProps same;
  std::memcpy(&same, props, sizeof(same));
  return driver(pool, &same);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  static const Driver<decltype(cuMemPoolDestroy)> driver("cuMemPoolDestroy", 11020);
  return driver(pool);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  static const Driver<decltype(cuMemGetInfo_v2)> driver("cuMemGetInfo", 3020);
  return driver(free, total);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  static const Driver<decltype(cuIpcGetMemHandle)> driver("cuIpcGetMemHandle", 4010);
  return driver(reinterpret_cast<CUipcMemHandle*>(handle), to_address(address));
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  static const Driver<decltype(cuStreamCreate)> driver("cuStreamCreate", 2000);
  return driver(stream, 0U);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static const Driver<decltype(cuStreamDestroy_v2)> driver("cuStreamDestroy", 4000);
  return driver(stream);
}

cudaError_t cudaDeviceReset() {
  static const Driver<decltype(cuDevicePrimaryCtxReset_v2)> driver("cuDevicePrimaryCtxReset", 7000);
  return driver(0);
}
}
