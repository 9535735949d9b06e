// Rows of a table picked by token, plus learned positions; and the gradients of both.
#pragma once

#include <cstdint>

namespace stowage::cpu {

struct EmbeddingShape {
  std::int64_t tokens = 0, width = 0, vocabulary = 0;
  std::int64_t sequence = 1;
  // The table is rows [first_row, first_row + vocabulary) of one with `all_rows` rows; 0: it is all of it.
  std::int64_t first_row = 0, all_rows = 0;
};

// y[n] = table[token[n]] + positions[n % sequence]; `positions` may be null. Throws InvalidInput
// for a token outside the table.
template <class T>
void embedding(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
               T* y);

// y[n] = table[token[n] - first_row] where the table has that row, else before[n], or 0 where `before` is
// null; y may be `before`. Throws InvalidInput for a token outside all rows.
template <class T>
void embedding_rows(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* before,
                    T* y);

// Row v of dtable is the sum, in token order, of the rows dy[n] whose token[n] is first_row + v. Tokens whose
// rows the table does not have are passed over. Columns are shared among threads.
template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable);

// dpositions[s] = sum, in order of samples, of dy[n] with n % sequence == s.
template <class T>
void position_backward(const EmbeddingShape& shape, const T* dy, T* dpositions);

// First tokens: each stands for its sample (BERT's [CLS]).

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
