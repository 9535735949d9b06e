// Linear layers: GEMMs of gemm.h. T: float, Bfloat16 or Float16. Works in stream order, with the lane's
// scratch. Throws as gemm.h says.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "stowage/bytes.h"

namespace stowage::cuda {

// weight[inputs, outputs], or [outputs, inputs] if transposed
struct LinearShape {
  std::int64_t tokens = 0, inputs = 0, outputs = 0;
  bool transposed = false;
};

// y[N, outputs] = x weight (+ bias, unless null)
template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y, void* stream);

// pre = x weight + bias, y = gelu(pre): in one GEMM for bf16 and f16 with the tanh form if cuBLASLt has it
// (outputs must be a multiple of 8), else as a GEMM and a GELU of the result rounded to T. The choice depends
// on the shape alone.
template <class T>
void linear_gelu(const LinearShape& shape, GeluForm form, const T* x, const T* weight, const T* bias, T* pre,
                 T* y, void* stream);

// With `add`, adds to dx.
template <class T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* weight, T* dx, bool add,
                           void* stream);
template <class T>
void linear_backward_weight(const LinearShape& shape, const T* x, const T* dy, T* dweight, void* stream);

// Computes linear, cross_entropy and the backward of both, `chunk` tokens at a time. Sums in f32; the loss in
// f64, in a fixed order. Targets as cross_entropy.h says.
template <class T>
struct LinearCrossEntropy {
  LinearShape shape;  // inputs: the width; outputs: the vocabulary, padding included
  std::int64_t chunk = 0;
  const T* x = nullptr;
  const T* weight = nullptr;
  const std::int32_t* targets = nullptr;
  // Targets of the whole batch, which are counted; `targets` may be a part of them. Null: `targets` is
  // the batch.
  const std::int32_t* batch_targets = nullptr;
  std::int64_t batch = 0;
  double* loss = nullptr;
  T* dx = nullptr;
  T* dweight = nullptr;
  // T[chunk, outputs]; then, for types of 16 bits and several chunks, at the next multiple of 256 bytes sums
  // f32[weight] and, with a bias, f32[outputs].
  void* workspace = nullptr;
  // The first outputs, which count; outputs behind them are padding, whose gradients are 0. 0: all count.
  std::int64_t vocabulary = 0;
  // [outputs]; `bias` and `dbias` are given together or not at all.
  const T* bias = nullptr;
  T* dbias = nullptr;
  double loss_scale = 1;  // factor on the gradients
};
template <class T>
Bytes workspace_bytes(const LinearCrossEntropy<T>& of);
template <class T>
void linear_cross_entropy(const LinearCrossEntropy<T>& of, void* stream);

}  // namespace stowage::cuda
