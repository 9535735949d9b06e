#include "kernels/cuda/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/cuda/softmax_row.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

// Returns the target's logit; 0 if there is none.
template <class T>
__device__ float logit_of(const Logits& shape, std::int64_t target, const T* row) {
  return target >= 0 && target < shape.vocabulary ? static_cast<float>(row[target]) : 0.0F;
}

// Returns the loss of a row; called by the thread that writes it.
__device__ inline double row_loss(const Logits& shape, std::int64_t target, float log_sum_exp, float logit) {
  if (target < 0) return 0;
  if (target >= shape.vocabulary) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(log_sum_exp) - static_cast<double>(logit);
}

template <class T>
__global__ void log_sum_exp_kernel(Logits shape, const T* logits, float* log_sum_exp, bool aligned) {
  __shared__ float shared[most_loss_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const SoftmaxSum of = softmax_sum_of(shape.vocabulary, logits + row * shape.columns, aligned, shared);
  if (threadIdx.x == 0) log_sum_exp[row] = of.log_of_sum();
}

// Launched as a single block.
template <class T>
__global__ void mean_loss_kernel(Logits shape, const T* logits, const std::int32_t* targets,
                                 BatchTargets batch, const float* log_sum_exp, double* loss) {
  __shared__ double shared[most_loss_threads / warp_size];
  const double count = counted(batch.rows, batch.targets, shared);
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < shape.rows; row += blockDim.x) {
    const float logit = logit_of(shape, targets[row], logits + row * shape.columns);
    sum += row_loss(shape, targets[row], log_sum_exp[row], logit);
  }
  sum = reduce_block<Sum>(sum, shared);
  if (threadIdx.x == 0) *loss = count == 0 ? 0 : sum / count;
}

template <class T>
__global__ void cross_entropy_backward_kernel(Logits shape, const T* logits, const std::int32_t* targets,
                                              const float* log_sum_exp, const double* count,
                                              double loss_scale, T* dlogits, bool aligned) {
  const std::int64_t row = blockIdx.x;
  write_gradient(shape, targets[row] >= 0, targets[row], log_sum_exp[row], share_of(*count, loss_scale),
                 logits + row * shape.columns, dlogits + row * shape.columns, aligned);
}

// Factor of kept exponentials: f16 would lose values below 2^-24.
template <class T>
inline constexpr float kept_scale = 1;
template <>
inline constexpr float kept_scale<Float16> = 0x1p14F;

// Computes exp(x - largest) for a row's logits. Logits of a narrow type lack the digits that `exponential`
// takes care to keep: for them it computes 2^(x log2(e) - top), with `top` as rounded.
template <class T>
class RowExponential {
 public:
  __device__ explicit RowExponential(float largest) : top_(is_narrow ? largest * log2_of_e : largest) {}
  __device__ float operator()(float x) const {
    if constexpr (is_narrow) return power_of_two(std::fma(x, log2_of_e, -top_));
    return exponential(x - top_);
  }
  __device__ float log_of_sum(float sum) const {
    return (is_narrow ? static_cast<float>(top_ * 0.69314718055994531) : top_) + std::log(sum);
  }

 private:
  static constexpr bool is_narrow = sizeof(T) == 2;
  static constexpr float log2_of_e = 1.44269504F;
  float top_;
};

// Turns a row of logits into its gradient, by the whole block: each thread goes over its own packs three
// times. The row is kept in shared memory if it fits there, else it stays in place.
template <class T>
struct RowInPlace {
  static constexpr int loads_in_flight = 4;
  Logits shape;
  T* row;
  T* kept;
  bool aligned, kept_aligned;

  __device__ static std::int64_t first() { return static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; }
  __device__ static std::int64_t step() { return static_cast<std::int64_t>(blockDim.x) * pack_size<T>; }

  template <class Body>
  __device__ void for_packs(Body body) const {
    for (std::int64_t i = first(); i < shape.columns; i += step()) body(i, shape.columns - i);
  }

  // Keeps the row; returns the largest of this thread's logits.
  __device__ float keep() const {
    float largest = below_all;
    for (std::int64_t i = first(); i < shape.columns; i += loads_in_flight * step()) {
      SixteenBytes words[loads_in_flight];
      if (aligned) {
        load(i, pack_size<T>, words);
      } else {
        load(i, 0, words);
      }
#pragma unroll
      for (int n = 0; n < loads_in_flight; ++n) {
        const std::int64_t at = i + n * step();
        if (at < shape.columns) largest = Largest::of(largest, keep_pack(at, words[n]));
      }
    }
    return largest;
  }

  // Turns logits into exponentials; returns the sum of this thread's exponentials. A NaN reaches the sum.
  __device__ float exponentials(const RowExponential<T>& exponential) const {
    float sum = 0;
    for_packs([&](std::int64_t i, std::int64_t count) {
      Pack<T> pack = load_pack(kept + i, count, kept_aligned);
      for (float& value : pack.values) value = exponential(value);
      fill_behind(shape.vocabulary - i, 0, pack);
      for (float& value : pack.values) {
        sum += value;
        value *= kept_scale<T>;
      }
      store_pack(kept + i, count, kept_aligned, pack);
    });
    return sum;
  }

  // The target's gradient is passed in: it is a difference that the rounding of a kept exponential
  // would spoil.
  __device__ void write_gradient(float scale, std::int64_t target, float target_gradient) const {
    const float kept_to_gradient = scale / kept_scale<T>;
    for_packs([&](std::int64_t i, std::int64_t count) {
      Pack<T> pack = load_pack(kept + i, count, kept_aligned);
      for (float& value : pack.values) value *= kept_to_gradient;
      if (target >= i && target < i + pack_size<T>) {
        for (int k = 0; k < pack_size<T>; ++k) {
          if (i + k == target) pack.values[k] = target_gradient;
        }
      }
      store_pack(row + i, count, aligned, pack);
    });
  }

  __device__ void clear() const {
    for_packs([&](std::int64_t i, std::int64_t count) { store_pack(row + i, count, aligned, Pack<T>{}); });
  }

 private:
  // Loads packs of `whole` elements, or of any number if `whole` is 0.
  __device__ void load(std::int64_t i, std::int64_t whole, SixteenBytes (&words)[loads_in_flight]) const {
#pragma unroll
    for (int n = 0; n < loads_in_flight; ++n) {
      const std::int64_t at = i + n * step();
      if (at < shape.columns)
        words[n] = load_words(row + at, whole > 0 ? whole : shape.columns - at, whole > 0);
    }
  }

  // Keeps the pack at `i`; returns its largest logit.
  __device__ float keep_pack(std::int64_t i, const SixteenBytes& words) const {
    Pack<T> pack = unpack(words, row);
    if (kept != row) store_sixteen(kept + i, words);
    fill_behind(shape.vocabulary - i, below_all, pack);
    float largest = below_all;
    for (const float value : pack.values) largest = Largest::of(largest, value);
    return largest;
  }
};

// The target's logit is read before any thread overwrites it: reduce_block separates the two.
template <class T>
__global__ void cross_entropy_in_place_kernel(Logits shape, LossChunk chunk, T* logits, bool aligned,
                                              bool in_shared_memory) {
  __shared__ float shared[most_loss_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = chunk.targets[chunk.first + row];
  T* const line = logits + row * shape.columns;
  const RowInPlace<T> of{shape, line, in_shared_memory ? dynamic_shared<T>() : line, aligned,
                         in_shared_memory || aligned};
  if (target < 0) {
    of.clear();
    if (threadIdx.x == 0) chunk.row_losses[row] = 0;
    return;
  }
  const float share = share_of(*chunk.count, chunk.loss_scale);  // computed while the row is loaded
  const float logit = logit_of(shape, target, line);
  const RowExponential<T> exponential(reduce_block<Largest>(of.keep(), shared));
  const float sum = reduce_block<Sum>(of.exponentials(exponential), shared);
  const float scale = share / sum;
  if (threadIdx.x == 0) chunk.row_losses[row] = row_loss(shape, target, exponential.log_of_sum(sum), logit);
  const bool counts = target < shape.vocabulary;
  of.write_gradient(scale, counts ? target : -1, exponential(logit) * scale - share);
}

__global__ void count_targets_kernel(std::int64_t rows, const std::int32_t* targets, double* count) {
  __shared__ double shared[most_loss_threads / warp_size];
  const double found = counted(rows, targets, shared);
  if (threadIdx.x == 0) *count = found;
}

__global__ void add_losses_kernel(std::int64_t rows, LossChunk chunk, double* loss) {
  __shared__ double shared[most_loss_threads / warp_size];
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) sum += chunk.row_losses[row];
  sum = reduce_block<Sum>(sum, shared);
  if (threadIdx.x != 0) return;
  if (chunk.first > 0) sum += *loss;
  const bool last = chunk.first + rows == chunk.batch;
  *loss = !last ? sum : *chunk.count == 0 ? 0 : sum / *chunk.count;
}

__global__ void add_loss_kernel(const double* a, const double* b, double* sum) {
  if (threadIdx.x == 0) *sum = *a + *b;
}

inline BatchTargets whole_batch(const Logits& shape, const std::int32_t* targets, BatchTargets batch) {
  return batch.rows > 0 ? batch : BatchTargets{shape.rows, targets};
}

// Shared memory that every card from sm_80 on allows a block, less the kernel's static part.
inline constexpr std::size_t most_row_bytes = (99 << 10) - 512;

template <class T>
void cross_entropy(const Logits& shape, const T* logits, const std::int32_t* targets, double* loss,
                   float* log_sum_exp, void* stream, BatchTargets batch) {
  launch(log_sum_exp_kernel<T>, "cross_entropy", loss_shape<T>(shape), stream, shape, logits, log_sum_exp,
         rows_are_aligned<T>(shape.columns, logits));
  launch(mean_loss_kernel<T>, "cross_entropy", one_block, stream, shape, logits, targets,
         whole_batch(shape, targets, batch), log_sum_exp, loss);
}

template <class T>
void cross_entropy_backward(const Logits& shape, const T* logits, const std::int32_t* targets,
                            const float* log_sum_exp, T* dlogits, void* stream, BatchTargets batch,
                            double loss_scale) {
  auto* count = static_cast<double*>(kept_scratch(stream, "cross_entropy_backward"));
  const BatchTargets all = whole_batch(shape, targets, batch);
  count_targets(all.rows, all.targets, count, stream);
  launch(cross_entropy_backward_kernel<T>, "cross_entropy_backward", loss_shape<T>(shape), stream, shape,
         logits, targets, log_sum_exp, count, loss_scale, dlogits,
         rows_are_aligned<T>(shape.columns, logits, dlogits));
}

template <class T>
void cross_entropy_in_place(const Logits& shape, const LossChunk& chunk, T* logits, void* stream) {
  LaunchShape blocks = loss_shape<T>(shape);
  const std::size_t row_bytes = blocks_for(shape.columns, pack_size<T>) * sizeof(SixteenBytes);
  if (row_bytes <= most_row_bytes) blocks.shared_bytes = row_bytes;
  launch(cross_entropy_in_place_kernel<T>, "linear_cross_entropy", blocks, stream, shape, chunk, logits,
         rows_are_aligned<T>(shape.columns, logits), blocks.shared_bytes > 0);
}

void count_targets(std::int64_t rows, const std::int32_t* targets, double* count, void* stream) {
  launch(count_targets_kernel, "count_targets", one_block, stream, rows, targets, count);
}

void add_losses(std::int64_t rows, const LossChunk& chunk, double* loss, void* stream) {
  launch(add_losses_kernel, "linear_cross_entropy", one_block, stream, rows, chunk, loss);
}

void add_loss(const double* a, const double* b, double* sum, void* stream) {
  launch(add_loss_kernel, "add_loss", {{}, warp_size}, stream, a, b, sum);
}

template void cross_entropy(const Logits&, const float*, const std::int32_t*, double*, float*, void*,
                            BatchTargets);
template void cross_entropy(const Logits&, const Bfloat16*, const std::int32_t*, double*, float*, void*,
                            BatchTargets);
template void cross_entropy_backward(const Logits&, const float*, const std::int32_t*, const float*, float*,
                                     void*, BatchTargets, double);
template void cross_entropy_backward(const Logits&, const Bfloat16*, const std::int32_t*, const float*,
                                     Bfloat16*, void*, BatchTargets, double);
template void cross_entropy_in_place(const Logits&, const LossChunk&, float*, void*);
template void cross_entropy_in_place(const Logits&, const LossChunk&, Bfloat16*, void*);
template void cross_entropy(const Logits&, const Float16*, const std::int32_t*, double*, float*, void*,
                            BatchTargets);
template void cross_entropy_backward(const Logits&, const Float16*, const std::int32_t*, const float*,
                                     Float16*, void*, BatchTargets, double);
template void cross_entropy_in_place(const Logits&, const LossChunk&, Float16*, void*);

STOWAGE_CUDA_KERNEL(log_sum_exp_kernel<float>);
STOWAGE_CUDA_KERNEL(log_sum_exp_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(log_sum_exp_kernel<Float16>);
STOWAGE_CUDA_KERNEL(mean_loss_kernel<float>);
STOWAGE_CUDA_KERNEL(mean_loss_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(mean_loss_kernel<Float16>);
STOWAGE_CUDA_KERNEL(cross_entropy_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(cross_entropy_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(cross_entropy_backward_kernel<Float16>);
STOWAGE_CUDA_KERNEL(cross_entropy_in_place_kernel<float>);
STOWAGE_CUDA_KERNEL(cross_entropy_in_place_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(cross_entropy_in_place_kernel<Float16>);
STOWAGE_CUDA_KERNEL(count_targets_kernel);
STOWAGE_CUDA_KERNEL(add_losses_kernel);
STOWAGE_CUDA_KERNEL(add_loss_kernel);

}  // namespace stowage::cuda
