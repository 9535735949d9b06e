// Token and position embedding, and the gradients of both tables. T: float, Bfloat16 or Float16; sums in f32,
// in order of the tokens. Takes any width and alignment. Stream order. Throws DeviceError, and InvalidInput
// where the lane's scratch is too small.
//
// Tokens lie on the device and are not checked on the host: a token outside the table gives a row of NaN, and
// its gradient is dropped.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct EmbeddingShape {
  std::int64_t tokens = 0, width = 0, vocabulary = 0;
  std::int64_t sequence = 1;  // tokens after which positions start again
  // The table is rows [first_row, first_row + vocabulary) of one with `all_rows` rows; 0: it is all of it.
  std::int64_t first_row = 0, all_rows = 0;
};

// y[n] = table[tokens[n]] (+ positions[n % sequence], unless null)
template <class T>
void embedding(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
               T* y, void* stream);

// y[n] = table[tokens[n] - first_row] where the table has that row, else before[n], or 0 where `before` is
// null; y may be `before`.
template <class T>
void embedding_rows(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* before,
                    T* y, void* stream);

// dtable[v] = sum of dy[n] where tokens[n] == first_row + v, in order of n; rows without a token are 0. No
// atomics: a warp owns a row, and looks through the tokens. For large tables and many tokens, the tokens are
// first sorted into 256 buckets of neighbouring rows, and a warp looks only through its bucket. Small tables
// are summed in chunks of tokens instead, into the lane's scratch, then the chunks in order. The choice of
// the three depends on the shape alone. Scratch: embedding_scratch bytes at most; more than two million
// tokens are not sorted.
inline constexpr std::int64_t embedding_scratch = std::int64_t{8} << 20;
template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable,
                        void* stream);

// dpositions[s] = sum of dy[n] where n % sequence == s, in order of n
template <class T>
void position_backward(const EmbeddingShape& shape, const T* dy, T* dpositions, void* stream);

// First tokens: each stands for its sample (BERT's [CLS]). T: float, Bfloat16 or Float16. Takes any width and
// alignment. Works in stream order, without scratch. Throws DeviceError.

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
