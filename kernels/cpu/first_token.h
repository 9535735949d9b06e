// Each sample's first token, which stands for the sample (BERT's [CLS]).
#pragma once

#include <cstdint>

namespace stowage::cpu {

struct FirstTokenShape {
  std::int64_t samples = 0, sequence = 1, width = 0;
};

// y[samples, width] = x[samples * sequence, width] at rows 0, sequence, …
template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y);

// dx[samples * sequence, width]: dy at those rows, else 0.
template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx);

}  // namespace stowage::cpu
