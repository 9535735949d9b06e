// Backward's two passes over heads [grid.first_head, grid.first_head + heads) of all samples' heads: in f32
// by plain arithmetic, in bf16 and f16 by tensor cores.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_grid.h"
#include "kernels/math/bfloat16.h"

namespace stowage::cuda {

template <class T>
struct BackwardTensors {
  const T* qkv;
  const float* log_sum_exp;
  const T* dout;
  const float* delta;  // of the launch's heads: each row's sum of dout * out
  T* dqkv;
};

void launch_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<float>& of,
                     void* stream);
// T: Bfloat16 or Float16.
template <class T>
void launch_tensor_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                            void* stream);
template <class T>
void launch_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                     void* stream) {
  launch_tensor_backward(grid, heads, of, stream);
}

}  // namespace stowage::cuda
