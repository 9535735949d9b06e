// The toolkit's own static runtime, as far as it gets without a real driver.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  void* address = nullptr;
  std::printf("%s\n", cudaGetErrorName(cudaMalloc(&address, 1000)));
  return 0;
}
