#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/math/exponential.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

template <class T>
STOWAGE_HOST_DEVICE void probabilities_loop(std::int64_t count, T log_sum_exp, T* scores) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) scores[i] = exponential(scores[i] - log_sum_exp);
}

// Turns probabilities into gradients of scores; `weighted` = sum of probability * its gradient.
template <class T>
STOWAGE_HOST_DEVICE void scores_gradient_loop(std::int64_t count, T weighted, const T* gradient,
                                              T* probabilities) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) probabilities[i] *= gradient[i] - weighted;
}

template <class T>
STOWAGE_HOST_DEVICE T dot_loop(std::int64_t count, const T* a, const T* b) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

STOWAGE_CLONES void probabilities(std::int64_t count, float log_sum_exp, float* scores) {
  probabilities_loop(count, log_sum_exp, scores);
}
void probabilities(std::int64_t count, double log_sum_exp, double* scores) {
  probabilities_loop(count, log_sum_exp, scores);
}

STOWAGE_CLONES void scores_gradient(std::int64_t count, float weighted, const float* gradient,
                                    float* probabilities) {
  scores_gradient_loop(count, weighted, gradient, probabilities);
}
void scores_gradient(std::int64_t count, double weighted, const double* gradient, double* probabilities) {
  scores_gradient_loop(count, weighted, gradient, probabilities);
}

STOWAGE_CLONES float dot(std::int64_t count, const float* a, const float* b) { return dot_loop(count, a, b); }
double dot(std::int64_t count, const double* a, const double* b) { return dot_loop(count, a, b); }

template <class T>
class Backward {
 public:
  Backward(const AttentionShape& shape, const T* qkv, const T* out, const T* log_sum_exp, const T* dout,
           T* dqkv)
      : shape_(shape),
        qkv_(qkv),
        out_(out),
        log_sum_exp_(log_sum_exp),
        dout_(dout),
        dqkv_(dqkv),
        mask_(shape.random, shape.dropout) {}

  // Computes the gradients of a head's queries, adds to those of its keys and values from key `written` on,
  // and overwrites those of the keys before. The last queries come first: each block of queries overwrites
  // the gradients of the keys that no later one sees.
  void run(const Head& head, std::int64_t written) const {
    const std::int64_t last = (shape_.sequence - 1) / query_block * query_block;
    for (std::int64_t row = last; row >= 0; row -= query_block) {
      Block block{row, std::min(query_block, shape_.sequence - row)};
      T weighted[query_block];
      for (std::int64_t i = 0; i < block.rows; ++i) {
        const std::int64_t at = output_offset(shape_, head) + (row + i) * shape_.width;
        weighted[i] = dot(shape_.head_width(), out_ + at, dout_ + at);
      }
      const std::int64_t first = first_key(shape_, head, row);
      const std::int64_t keys = keys_seen(shape_, row, block.rows);
      for (block.key = first; block.key < keys; block.key += block.keys) {
        const std::int64_t end = block.key < written ? std::min(keys, written) : keys;
        block.keys = std::min(key_block, end - block.key);
        run_block(head, block, weighted, {block.key > first, block.key >= written});
      }
      written = std::min(written, first);
    }
  }

 private:
  // The gradients to which a block adds; it overwrites the others.
  struct Adds {
    bool queries, keys;
  };

  void run_block(const Head& head, const Block& block, const T* weighted, const Adds& add) const {
    ScoresTile<T> tile;
    ScoresTile<T> gradient;
    const HeadRows<const T*> from = rows_of(shape_, head, qkv_);
    const HeadRows<T*> to = rows_of(shape_, head, dqkv_);
    const std::int64_t stride = shape_.packed_width();
    const T* dout = dout_ + output_offset(shape_, head);
    const T scale = score_scale<T>(shape_);

    multiply_rows(shape_, block, from.queries, stride, from.keys, stride, scale, tile);
    const T* log_sum_exp = log_sum_exp_ + row_number(shape_, head) + block.row;
    for (std::int64_t i = 0; i < block.rows; ++i) {
      T* row = tile.data + i * key_block;
      const KeyRange seen = visible(shape_, head, block, i);
      probabilities(seen.count(), log_sum_exp[i], row + seen.first);
      seen.clear_others(block, row);
      hide(shape_, head, block, T{0}, row);
    }
    const ScoresTile<T>& weights = shape_.dropout > 0 ? drop(head, block, tile, gradient) : tile;
    add_product(block, weights, dout + block.row * shape_.width, shape_.width, T{1}, to.values, add.keys);

    multiply_rows(shape_, block, dout, shape_.width, from.values, stride, T{1}, gradient);
    if (shape_.dropout > 0) drop(head, block, gradient, gradient);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const KeyRange seen = visible(shape_, head, block, i);
      const std::int64_t at = i * key_block + seen.first;
      scores_gradient(seen.count(), weighted[i], gradient.data + at, tile.data + at);
    }
    multiply_here<T>({block.rows,
                      shape_.head_width(),
                      block.keys,
                      {tile.data, key_block},
                      {from.keys + block.key * stride, stride},
                      to.queries + block.row * stride,
                      stride},
                     scale, add.queries);
    add_product(block, tile, from.queries + block.row * stride, stride, scale, to.keys, add.keys);
  }

  // to[keys] (+)= scale * tile^T rows
  void add_product(const Block& block, const ScoresTile<T>& tile, const T* rows, std::int64_t rows_stride,
                   T scale, T* to, bool add) const {
    const std::int64_t stride = shape_.packed_width();
    multiply_here<T>({block.keys,
                      shape_.head_width(),
                      block.rows,
                      {tile.data, key_block, true},
                      {rows, rows_stride},
                      to + block.key * stride,
                      stride},
                     scale, add);
  }

  // Draws forward's mask again and applies it to all rows of `from`.
  const ScoresTile<T>& drop(const Head& head, const Block& block, const ScoresTile<T>& from,
                            ScoresTile<T>& to) const {
    for (std::int64_t i = 0; i < block.rows; ++i) {
      mask_.apply(first_draw(shape_, head, block, i), block.keys, from.data + i * key_block,
                  to.data + i * key_block);
    }
    return to;
  }

  const AttentionShape& shape_;
  const T* qkv_;
  const T* out_;
  const T* log_sum_exp_;
  const T* dout_;
  T* dqkv_;
  DropoutMask mask_;
};

// Calls body(head, written) for each query head, with `written` as Backward::run takes it: the heads of a
// group one after another, since each adds to the gradients of the same keys and values.
template <class Body>
void for_each_head(const AttentionShape& shape, Body body) {
  const std::int64_t group = shape.group();
  parallel_for(shape.samples * shape.heads / group, 1, [&](std::int64_t number, std::int64_t) {
    for (std::int64_t i = 0; i < group; ++i)
      body(head_of(shape, number * group + i), i == 0 ? shape.sequence : 0);
  });
}

// Computes head by head, each widened to f32. The gradients of a group's keys and values stay widened until
// its last head has added to them.
template <Narrow T>
void differentiate_widened(const AttentionShape& shape, const T* qkv, const T* out, const float* log_sum_exp,
                           const T* dout, T* dqkv) {
  const std::int64_t sequence = shape.sequence;
  const std::int64_t width = shape.head_width();
  const std::int64_t part = sequence * width;
  for_each_head(shape, [&](const Head& head, std::int64_t written) {
    const AttentionShape one = alone(shape, head);
    const std::int64_t at = output_offset(shape, head);
    float* const wide_qkv = thread_scratch<float>(8 * part);
    float* const wide_out = wide_qkv + 3 * part;
    float* const wide_dout = wide_out + part;
    float* const wide_dqkv = wide_dout + part;
    widen_head(shape, head, qkv, wide_qkv);
    widen_rows(sequence, width, out + at, shape.width, width, wide_out);
    widen_rows(sequence, width, dout + at, shape.width, width, wide_dout);
    const float* const head_log_sum_exp = log_sum_exp + row_number(shape, head);
    Backward<float>(one, wide_qkv, wide_out, head_log_sum_exp, wide_dout, wide_dqkv).run({}, written);
    narrow_head(shape, head, wide_dqkv, dqkv);
  });
}

}  // namespace

template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out, const Sum<T>* log_sum_exp,
                        const T* dout, T* dqkv) {
  if constexpr (is_narrow<T>) {
    differentiate_widened(shape, qkv, out, log_sum_exp, dout, dqkv);
  } else {
    const Backward<T> backward(shape, qkv, out, log_sum_exp, dout, dqkv);
    for_each_head(shape, [&](const Head& head, std::int64_t written) { backward.run(head, written); });
  }
}

template void attention_backward(const AttentionShape&, const float*, const float*, const float*,
                                 const float*, float*);
template void attention_backward(const AttentionShape&, const double*, const double*, const double*,
                                 const double*, double*);
template void attention_backward(const AttentionShape&, const Bfloat16*, const Bfloat16*, const float*,
                                 const Bfloat16*, Bfloat16*);
template void attention_backward(const AttentionShape&, const Float16*, const Float16*, const float*,
                                 const Float16*, Float16*);

}  // namespace stowage::cpu
