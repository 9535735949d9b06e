#include "tests/kernels/cuda/fragment_kernels.h"

#include "kernels/cuda/fragments.h"
#include "kernels/cuda/kernel_registry.h"

namespace stowage::test {

template <class T>
__global__ void fragments_kernel(const FragmentInput* input, FragmentOutput* output) {
  __shared__ __align__(16) std::uint16_t elements[16 * tile_stride];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 16 * tile_stride; i += warp_lanes)
    elements[i] = input->tile[i / tile_stride][i % tile_stride];
  __syncthreads();
  const auto* const tile = reinterpret_cast<const T*>(elements);
  cuda::LeftFragment left;
  cuda::RightFragment right;
  cuda::SumsFragment sums;
  for (int i = 0; i < 4; ++i) left.words[i] = input->left[lane][i];
  for (int i = 0; i < 4; ++i) right.words[i] = input->right[lane][i];
  for (int i = 0; i < 8; ++i) sums.values[i] = input->sums[lane][i];
  const cuda::LeftFragment rounded_sums = cuda::rounded<T>(sums);
  cuda::multiply_add<T>(left, right, sums);
  const cuda::LeftFragment left_block = cuda::left_block(tile, tile_stride);
  const cuda::RightFragment right_block = cuda::right_block(tile, tile_stride);
  const cuda::RightFragment right_transpose = cuda::right_transpose(tile, tile_stride);
  for (int i = 0; i < 8; ++i) output->products[lane][i] = sums.values[i];
  for (int i = 0; i < 4; ++i) {
    output->rounded[lane][i] = rounded_sums.words[i];
    output->left_block[lane][i] = left_block.words[i];
    output->right_block[lane][i] = right_block.words[i];
    output->right_transpose[lane][i] = right_transpose.words[i];
  }
}

STOWAGE_CUDA_KERNEL(fragments_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(fragments_kernel<Float16>);

template <class T>
cudaError_t launch_fragments(const FragmentInput* input, FragmentOutput* output) {
  void* args[] = {&input, &output};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&fragments_kernel<T>), dim3(1), dim3(warp_lanes),
                          args, 0, nullptr);
}

template cudaError_t launch_fragments<Bfloat16>(const FragmentInput*, FragmentOutput*);
template cudaError_t launch_fragments<Float16>(const FragmentInput*, FragmentOutput*);

}  // namespace stowage::test
