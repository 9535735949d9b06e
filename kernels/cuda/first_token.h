// Each sample's first token, which stands for the sample (BERT's [CLS]). T: float, Bfloat16 or Float16. Any
// width and alignment. Stream order, no scratch. Throws DeviceError.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct FirstTokenShape {
  std::int64_t samples = 0, sequence = 1, width = 0;
};

// y[samples, width] = x[samples * sequence, width] at rows 0, sequence, …
template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y, void* stream);

// dx[samples * sequence, width]: dy at those rows, else 0.
template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx, void* stream);

}  // namespace stowage::cuda
