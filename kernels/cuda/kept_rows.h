// A choice of each sample's tokens by their scores, and the rows of the chosen tokens: taken out of a tensor
// and added back to it. T: float, Bfloat16 or Float16. Takes any width and alignment. Works in stream order,
// without scratch. Throws DeviceError.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct TopTokensShape {
  std::int64_t samples = 0, sequence = 1;
  std::int64_t keep = 1;  // tokens of a sample that are kept, at most `sequence`
  // [samples, sequence]: tokens where it is 0 stand behind all others. Null: all are seen.
  const std::int32_t* seen = nullptr;
};

// rows[samples * keep]: the numbers of the tokens with the highest scores of their sample, counted through
// all samples, in rising order. Of equal scores the lower position comes first; NaN stands behind every
// score. A block chooses for a sample of any length, and reads its scores 34 times.
void top_tokens(const TopTokensShape& shape, const float* scores, std::int32_t* rows, void* stream);

// Some rows of a matrix [tokens, width]: `kept` numbers of rows that rise. They lie on the device and are not
// checked on the host: a number outside the matrix gives a row of NaN in take_rows, and is passed over
// elsewhere.
struct KeptRows {
  std::int64_t tokens = 0, kept = 0, width = 0;
};

// y[kept, width] = the rows of x[tokens, width]
template <class T>
void take_rows(const KeptRows& shape, const T* x, const std::int32_t* rows, T* y, void* stream);

// dx[tokens, width] = dy[kept, width] in these rows, 0 in the others
template <class T>
void take_rows_backward(const KeptRows& shape, const T* dy, const std::int32_t* rows, T* dx, void* stream);

// to[tokens, width] = x, plus y[kept, width] in these rows; `to` may be x
template <class T>
void add_rows(const KeptRows& shape, const T* x, const T* y, const std::int32_t* rows, T* to, void* stream);

}  // namespace stowage::cuda
