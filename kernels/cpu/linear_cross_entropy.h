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
  // Targets of the whole batch, which are counted; `targets` may be a part of them. Null: `targets` is
  // the batch.
  const std::int32_t* batch_targets = nullptr;
  std::int64_t batch = 0;
  double* loss = nullptr;  // sum of the rows' losses in f64 in order, over the targets that count
  T* dx = nullptr;
  T* dweight = nullptr;
  T* logits = nullptr;  // [chunk, outputs], scratch
  // The first outputs, which count; outputs behind them are padding, whose gradients are 0. 0: all count.
  std::int64_t vocabulary = 0;
  // [outputs]; `bias` and `dbias` are given together or not at all.
  const T* bias = nullptr;
  T* dbias = nullptr;
  // Scratch for sums of dweight and dbias over the chunks. Needed for narrow types and several chunks, since
  // a narrow sum would be rounded with every chunk; else null.
  Sum<T>* dweight_sum = nullptr;
  Sum<T>* dbias_sum = nullptr;
  double loss_scale = 1;  // factor on the gradients

  bool sums_apart() const { return is_narrow<T> && chunk < shape.tokens; }
};

// Throws InvalidInput for a target beyond the vocabulary.
template <class T>
void linear_cross_entropy(const LinearCrossEntropy<T>& of);

}  // namespace stowage::cpu
