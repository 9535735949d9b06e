#include "kernels/cpu/attention.h"

#include <limits>
#include <string>

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/math/exponential.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cpu {
namespace {

// A row's state over the keys seen so far: the largest score, and the sum of exp(score - largest), which is 0
// only before the first key.
template <class T>
struct RowState {
  T largest = 0, sum = 0;
};

template <class T>
STOWAGE_HOST_DEVICE T largest_of(std::int64_t count, const T* scores) {
  T largest = scores[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
  return largest;
}

// Turns scores into exp(score - largest); returns their sum.
template <class T>
STOWAGE_HOST_DEVICE T exponentials_loop(std::int64_t count, T largest, T* scores) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = exponential(scores[i] - largest);
    scores[i] = value;
    sum += value;
  }
  return sum;
}

template <class T>
STOWAGE_HOST_DEVICE void scale_loop(std::int64_t count, T factor, T* values) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// Processes the first keys of a row.
template <class T>
STOWAGE_HOST_DEVICE void start_row(std::int64_t count, T* scores, RowState<T>& state) {
  state.largest = largest_of(count, scores);
  state.sum = exponentials_loop(count, state.largest, scores);
}

// Processes further keys: sums against the old largest score, and `out`, are scaled to the new one.
template <class T>
STOWAGE_HOST_DEVICE void extend_row(std::int64_t count, T* scores, RowState<T>& state, std::int64_t width,
                                    T* out) {
  const T found = largest_of(count, scores);
  const T largest = found > state.largest ? found : state.largest;
  const T factor = exponential(state.largest - largest);
  state.largest = largest;
  state.sum = state.sum * factor + exponentials_loop(count, largest, scores);
  scale_loop(width, factor, out);
}

STOWAGE_CLONES void start(std::int64_t count, float* scores, RowState<float>& state) {
  start_row(count, scores, state);
}
void start(std::int64_t count, double* scores, RowState<double>& state) { start_row(count, scores, state); }

STOWAGE_CLONES void extend(std::int64_t count, float* scores, RowState<float>& state, std::int64_t width,
                           float* out) {
  extend_row(count, scores, state, width, out);
}
void extend(std::int64_t count, double* scores, RowState<double>& state, std::int64_t width, double* out) {
  extend_row(count, scores, state, width, out);
}

template <class T>
class Forward {
 public:
  Forward(const AttentionShape& shape, const T* qkv, T* out, T* log_sum_exp)
      : shape_(shape), qkv_(qkv), out_(out), log_sum_exp_(log_sum_exp), mask_(shape.random, shape.dropout) {}

  // Computes a block of queries against all keys that they see.
  void run(const Head& head, std::int64_t row) const {
    ScoresTile<T> tile;
    RowState<T> states[query_block];
    const HeadRows<const T*> rows = rows_of(shape_, head, qkv_);
    T* out = out_ + output_offset(shape_, head) + row * shape_.width;
    Block block{row, std::min(query_block, shape_.sequence - row)};
    const std::int64_t first = first_key(shape_, head, row);
    const std::int64_t keys = keys_seen(shape_, row, block.rows);
    const std::int64_t stride = shape_.packed_width();
    for (block.key = first; block.key < keys; block.key += key_block) {
      block.keys = std::min(key_block, keys - block.key);
      multiply_rows(shape_, block, rows.queries, stride, rows.keys, stride, score_scale<T>(shape_), tile);
      for (std::int64_t i = 0; i < block.rows; ++i)
        weigh(head, block, i, tile, states[i], out + i * shape_.width);
      multiply_here<T>({block.rows,
                        shape_.head_width(),
                        block.keys,
                        {tile.data, key_block},
                        {rows.values + block.key * stride, stride},
                        out,
                        shape_.width},
                       T{1}, block.key > first);
    }
    T* log_sum_exp = log_sum_exp_ + row_number(shape_, head) + row;
    for (std::int64_t i = 0; i < block.rows; ++i) {
      scale_loop(shape_.head_width(), 1 / states[i].sum, out + i * shape_.width);
      log_sum_exp[i] = states[i].largest + std::log(states[i].sum);
    }
  }

 private:
  // Turns row i of the tile from scores into weights, after dropout.
  void weigh(const Head& head, const Block& block, std::int64_t i, ScoresTile<T>& tile, RowState<T>& state,
             T* out) const {
    T* scores = tile.data + i * key_block;
    const KeyRange seen = visible(shape_, head, block, i);
    T* const visible_scores = scores + seen.first;
    hide(shape_, head, block, hidden, scores);
    if (state.sum == 0 && seen.count() > 0) {
      start(seen.count(), visible_scores, state);
    } else if (seen.count() > 0) {
      extend(seen.count(), visible_scores, state, shape_.head_width(), out);
    }
    hide(shape_, head, block, T{0}, scores);  // needed since exponential() is never 0
    if (shape_.dropout > 0) {
      const std::uint64_t draw = first_draw(shape_, head, block, i) + static_cast<std::uint64_t>(seen.first);
      mask_.apply(draw, seen.count(), visible_scores, visible_scores);
    }
    seen.clear_others(block, scores);
  }

  // A hidden key's score: below every score, but so that no difference of two scores overflows. Its part of
  // sums before the first seen key is scaled to zero by that key.
  static constexpr T hidden = std::numeric_limits<T>::lowest() / 4;

  const AttentionShape& shape_;
  const T* qkv_;
  T* out_;
  T* log_sum_exp_;
  DropoutMask mask_;
};

void require_keys(const AttentionShape& shape) {
  for (std::int64_t sample = 0; shape.seen != nullptr && sample < shape.samples; ++sample) {
    const std::int32_t* seen = shape.seen + sample * shape.sequence;
    const auto is_seen = [](std::int32_t key) { return key != 0; };
    if (std::none_of(seen, seen + shape.sequence, is_seen))
      throw InvalidInput("attention: all positions of sample " + std::to_string(sample) +
                         " are padding; let at least one be seen");
    if (shape.padded_at_end && !std::is_partitioned(seen, seen + shape.sequence, is_seen))
      throw InvalidInput("attention: sample " + std::to_string(sample) +
                         " has padding in front of a position that is seen; put it at the end, or leave out "
                         "padding_at_end");
  }
}

void require_documents(const AttentionShape& shape) {
  for (std::int64_t n = 0; shape.begins != nullptr && n < shape.samples * shape.sequence; ++n) {
    const std::int64_t index = n % shape.sequence;
    const std::int32_t least = index > 0 ? shape.begins[n - 1] : 0;
    if (shape.begins[n] < least || shape.begins[n] > index)
      throw InvalidInput("attention: the document of token " + std::to_string(index) + " of sample " +
                         std::to_string(n / shape.sequence) + " begins at " +
                         std::to_string(shape.begins[n]) + "; give an index from " + std::to_string(least) +
                         " to " + std::to_string(index));
  }
}

// Computes head by head, each widened to f32.
template <Narrow T>
void attend_widened(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp) {
  const std::int64_t sequence = shape.sequence;
  const std::int64_t width = shape.head_width();
  parallel_for(shape.samples * shape.heads, 1, [&](std::int64_t number, std::int64_t) {
    const Head head = head_of(shape, number);
    const AttentionShape one = alone(shape, head);
    float* const wide_qkv = thread_scratch<float>(4 * sequence * width);
    float* const wide_out = wide_qkv + 3 * sequence * width;
    widen_head(shape, head, qkv, wide_qkv);
    const Forward<float> forward(one, wide_qkv, wide_out, log_sum_exp + row_number(shape, head));
    for (std::int64_t row = 0; row < sequence; row += query_block) forward.run({}, row);
    narrow_rows(sequence, width, wide_out, width, shape.width, out + output_offset(shape, head));
  });
}

}  // namespace

template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, Sum<T>* log_sum_exp) {
  require_keys(shape);
  require_documents(shape);
  if constexpr (is_narrow<T>) {
    attend_widened(shape, qkv, out, log_sum_exp);
  } else {
    const Forward<T> forward(shape, qkv, out, log_sum_exp);
    const std::int64_t blocks = (shape.sequence + query_block - 1) / query_block;
    parallel_for(shape.samples * shape.heads * blocks, 1, [&](std::int64_t index, std::int64_t) {
      forward.run(head_of(shape, index / blocks), index % blocks * query_block);
    });
  }
}

template void attention(const AttentionShape&, const float*, float*, float*);
template void attention(const AttentionShape&, const double*, double*, double*);
template void attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*);
template void attention(const AttentionShape&, const Float16*, Float16*, float*);

}  // namespace stowage::cpu
