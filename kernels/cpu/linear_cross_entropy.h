// The head and its loss, a chunk of tokens at a time, with the gradients of both inputs in the same pass.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/storage.h"

namespace stowage::cpu {

template <class T>
struct LinearCrossEntropy {
  LinearShape shape;  // inputs: the width; outputs: the vocabulary, padding included
  std::int64_t chunk = 0;
  const T* x = nullptr;
  const T* weight = nullptr;
  const std::int32_t* targets = nullptr;
  // The batch's, of which `targets` may be a part: they are counted. None: the targets are all.
  const std::int32_t* batch_targets = nullptr;
  std::int64_t batch = 0;
  double* loss = nullptr;  // sum of the rows' losses in f64 in order, over the targets that count
  T* dx = nullptr;
  T* dweight = nullptr;
  T* logits = nullptr;  // [chunk, outputs], scratch
  // The outputs that count; those behind them are padding, whose gradients are 0. 0: all.
  std::int64_t vocabulary = 0;
  // [outputs], both or none.
  const T* bias = nullptr;
  T* dbias = nullptr;
  // Sums of dweight and dbias over the chunks, scratch: for narrow types and more than one chunk, which would
  // be rounded with every chunk. Else none.
  Sum<T>* dweight_sum = nullptr;
  Sum<T>* dbias_sum = nullptr;
  double loss_scale = 1;  // of the gradients

  bool sums_apart() const { return is_narrow<T> && chunk < shape.tokens; }
};

// Throws InvalidInput for a target beyond the vocabulary.
template <class T>
void linear_cross_entropy(const LinearCrossEntropy<T>& of);

}  // namespace stowage::cpu
