#include "kernels/cpu/attention_scores.h"

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/clones.h"
#include "kernels/math/exponential.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

template <class T>
STOWAGE_HOST_DEVICE void add_probabilities_loop(std::int64_t count, const T* scores, T log_sum_exp, T* sums) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += exponential(scores[i] - log_sum_exp);
}

STOWAGE_CLONES void add_probabilities(std::int64_t count, const float* scores, float log_sum_exp,
                                      float* sums) {
  add_probabilities_loop(count, scores, log_sum_exp, sums);
}
void add_probabilities(std::int64_t count, const double* scores, double log_sum_exp, double* sums) {
  add_probabilities_loop(count, scores, log_sum_exp, sums);
}

// Sums probabilities of a head's keys over its queries. `sums` and `log_sum_exp` have the shape [samples,
// heads, sequence].
template <class T>
class KeySums {
 public:
  KeySums(const AttentionShape& shape, const T* qkv, const T* log_sum_exp, T* sums)
      : shape_(shape), qkv_(qkv), log_sum_exp_(log_sum_exp), sums_(sums) {}

  // Computes the sums of a block of keys, from `key` on.
  void run(const Head& head, std::int64_t key) const {
    ScoresTile<T> tile;
    const HeadRows<const T*> rows = rows_of(shape_, head, qkv_);
    const std::int64_t stride = shape_.packed_width();
    Block block{0, 0, key, std::min(key_block, shape_.sequence - key)};
    T* const sums = sums_ + row_number(shape_, head) + key;
    std::fill_n(sums, block.keys, T{0});
    block.row = shape_.causal ? key / query_block * query_block : 0;
    for (; block.row < shape_.sequence; block.row += query_block) {
      block.rows = std::min(query_block, shape_.sequence - block.row);
      multiply_rows(shape_, block, rows.queries, stride, rows.keys, stride, score_scale<T>(shape_), tile);
      for (std::int64_t i = 0; i < block.rows; ++i) add(head, block, i, tile.data + i * key_block, sums);
    }
    hide(shape_, head, block, T{0}, sums);
  }

 private:
  // Adds the probabilities of the block's query i, unless that is padding.
  void add(const Head& head, const Block& block, std::int64_t i, const T* scores, T* sums) const {
    const std::int64_t query = block.row + i;
    if (shape_.seen != nullptr && shape_.seen[head.sample * shape_.sequence + query] == 0) return;
    const KeyRange keys = visible(shape_, head, block, i);
    add_probabilities(keys.count(), scores + keys.first, log_sum_exp_[row_number(shape_, head) + query],
                      sums + keys.first);
  }

  const AttentionShape& shape_;
  const T* qkv_;
  const T* log_sum_exp_;
  T* sums_;
};

// Computes head by head, each widened to f32.
template <Narrow T>
void sum_widened(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* by_head) {
  parallel_for(shape.samples * shape.heads, 1, [&](std::int64_t number, std::int64_t) {
    const Head head = head_of(shape, number);
    const AttentionShape one = alone(shape, head);
    float* const wide = thread_scratch<float>(3 * shape.sequence * shape.head_width());
    widen_head(shape, head, qkv, wide);
    const std::int64_t row = row_number(shape, head);
    const KeySums<float> sums(one, wide, log_sum_exp + row, by_head + row);
    for (std::int64_t key = 0; key < shape.sequence; key += key_block) sums.run({}, key);
  });
}

// Adds up the heads of each sample, in place, and copies the first head's row.
template <class T>
void add_heads(const AttentionShape& shape, T* by_head, T* scores) {
  const std::int64_t sequence = shape.sequence;
  parallel_for(shape.samples, 1, [&](std::int64_t sample, std::int64_t) {
    T* const first = by_head + sample * shape.heads * sequence;
    for (std::int64_t distance = 1; distance < shape.heads; distance *= 2)
      for (std::int64_t head = 0; head + distance < shape.heads; head += 2 * distance)
        for (std::int64_t i = 0; i < sequence; ++i)
          first[head * sequence + i] += first[(head + distance) * sequence + i];
    std::copy_n(first, sequence, scores + sample * sequence);
  });
}

}  // namespace

template <class T>
void attention_scores(const AttentionShape& shape, const T* qkv, const Sum<T>* log_sum_exp, Sum<T>* scores,
                      Sum<T>* by_head) {
  if constexpr (is_narrow<T>) {
    sum_widened(shape, qkv, log_sum_exp, by_head);
  } else {
    const KeySums<T> sums(shape, qkv, log_sum_exp, by_head);
    const std::int64_t blocks = (shape.sequence + key_block - 1) / key_block;
    parallel_for(shape.samples * shape.heads * blocks, 1, [&](std::int64_t index, std::int64_t) {
      sums.run(head_of(shape, index / blocks), index % blocks * key_block);
    });
  }
  add_heads(shape, by_head, scores);
}

template void attention_scores(const AttentionShape&, const float*, const float*, float*, float*);
template void attention_scores(const AttentionShape&, const double*, const double*, double*, double*);
template void attention_scores(const AttentionShape&, const Bfloat16*, const float*, float*, float*);
template void attention_scores(const AttentionShape&, const Float16*, const float*, float*, float*);

}  // namespace stowage::cpu
