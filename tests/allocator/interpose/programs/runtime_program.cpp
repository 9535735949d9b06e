// Uses the CUDA runtime alone. It is linked with the static runtime and with the shared one.
#include <cuda_runtime_api.h>

#include "tests/allocator/interpose/programs/expectation.h"

extern "C" {
cudaError_t cudaMallocAsync_ptsz(void** address, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream);
}

namespace {

void ok(cudaError_t error) { require(error == cudaSuccess, "a call succeeds"); }

void use_ordered_memory() {
  cudaStream_t stream = nullptr;
  void *ordered = nullptr, *of_the_thread = nullptr, *pooled = nullptr;
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  ok(cudaStreamCreate(&stream));
  ok(cudaMemPoolCreate(&pool, &props));
  ok(cudaMallocAsync(&ordered, 4000, stream));
  asked("async", 4000);
  ok(cudaMallocAsync_ptsz(&of_the_thread, 4100, nullptr));
  asked("async", 4100);
  ok(cudaMallocFromPoolAsync(&pooled, 5000, pool, stream));
  asked("pool", 5000);
  ok(cudaFreeAsync(ordered, stream));
  ok(cudaFreeAsync_ptsz(of_the_thread, nullptr));
  ok(cudaFreeAsync(pooled, stream));
  ok(cudaMemPoolDestroy(pool));
  ok(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  void *plain = nullptr, *pitched = nullptr, *managed = nullptr;
  std::size_t pitch = 0, free_before = 0, free_after = 0, total = 0;
  ok(cudaMemGetInfo(&free_before, &total));
  ok(cudaMalloc(&plain, 1000));
  asked("device", 1000);
  ok(cudaMallocPitch(&pitched, &pitch, 100, 20));
  asked("pitched", 100 * 20);
  ok(cudaMallocManaged(&managed, 3000, cudaMemAttachGlobal));
  asked("managed", 3000);
  use_ordered_memory();
  ok(cudaMemGetInfo(&free_after, &total));
  require(free_after < free_before, "memory is taken");
  ok(cudaFree(plain));
  ok(cudaFree(pitched));
  ok(cudaFree(managed));
  ok(cudaFree(nullptr));
  require(cudaFree(&total) != cudaSuccess, "a foreign address is not freed");
  return 0;
}
