#include "kernels/cpu/first_token.h"

#include <algorithm>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {

template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y) {
  const std::int64_t width = shape.width;
  parallel_for(shape.samples, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sample = begin; sample < end; ++sample)
      std::copy_n(x + sample * shape.sequence * width, width, y + sample * width);
  });
}

template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx) {
  const std::int64_t width = shape.width;
  parallel_for(shape.samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sample = begin; sample < end; ++sample) {
      T* rows = dx + sample * shape.sequence * width;
      std::copy_n(dy + sample * width, width, rows);
      std::fill(rows + width, rows + shape.sequence * width, T{});
    }
  });
}

template void first_token(const FirstTokenShape&, const float*, float*);
template void first_token(const FirstTokenShape&, const double*, double*);
template void first_token_backward(const FirstTokenShape&, const float*, float*);
template void first_token_backward(const FirstTokenShape&, const double*, double*);
template void first_token(const FirstTokenShape&, const Bfloat16*, Bfloat16*);
template void first_token_backward(const FirstTokenShape&, const Bfloat16*, Bfloat16*);
template void first_token(const FirstTokenShape&, const Float16*, Float16*);
template void first_token_backward(const FirstTokenShape&, const Float16*, Float16*);

}  // namespace stowage::cpu
