// The loss of logits that exist in blocks of columns.
#include <algorithm>
#include <limits>

#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/softmax_row.h"

namespace stowage::cuda {

template <class T>
__global__ void fold_logits_kernel(LogitBlock block, std::int64_t counted, const T* logits,
                                   const std::int32_t* targets, const float* before, float* statistics,
                                   bool aligned) {
  __shared__ float shared[most_loss_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = targets[row];
  SoftmaxSum of{0, 1};
  float logit = 0;
  if (target >= 0) {
    const T* line = logits + row * block.columns;
    of = softmax_sum_of(counted, line, aligned, shared);
    logit = before == nullptr ? below_all : before[2 * block.rows + row];
    if (before != nullptr) {
      const SoftmaxSum seen{before[row], before[block.rows + row]};
      const float largest = Largest::of(seen.largest, of.largest);
      of = {largest,
            seen.sum * exponential(seen.largest - largest) + of.sum * exponential(of.largest - largest)};
    }
    const std::int64_t here = target - block.first;
    if (here >= 0 && here < counted) logit = static_cast<float>(line[here]);
  }
  if (threadIdx.x != 0) return;
  statistics[row] = of.largest;
  statistics[block.rows + row] = of.sum;
  statistics[2 * block.rows + row] = logit;
}

// Launched as a single block.
__global__ void loss_of_statistics_kernel(std::int64_t rows, const float* statistics,
                                          const std::int32_t* targets, BatchTargets batch, double* loss) {
  __shared__ double shared[most_loss_threads / warp_size];
  const double count = counted(batch.rows, batch.targets, shared);
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    if (targets[row] < 0) continue;
    const SoftmaxSum of{statistics[row], statistics[rows + row]};
    const float logit = statistics[2 * rows + row];
    sum += logit == below_all ? std::numeric_limits<double>::quiet_NaN()
                              : static_cast<double>(of.log_of_sum()) - static_cast<double>(logit);
  }
  sum = reduce_block<Sum>(sum, shared);
  if (threadIdx.x == 0) *loss = count == 0 ? 0 : sum / count;
}

__global__ void factors_of_statistics_kernel(std::int64_t rows, const float* statistics,
                                             const std::int32_t* targets, const double* count,
                                             double loss_scale, float* factors) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const SoftmaxSum of{statistics[row], statistics[rows + row]};
  factors[row] = of.log_of_sum();
  factors[rows + row] = factors[2 * rows + row] = targets[row] < 0 ? 0.0F : share_of(*count, loss_scale);
}

template <class T>
__global__ void differentiate_logits_kernel(LogitBlock block, std::int64_t counted,
                                            const std::int32_t* targets, const float* factors, T* logits,
                                            bool aligned) {
  const std::int64_t row = blockIdx.x;
  T* const line = logits + row * block.columns;
  write_gradient({block.rows, counted, block.columns}, targets[row] >= 0, targets[row] - block.first,
                 factors[row], factors[block.rows + row], line, line, aligned);
}

inline std::int64_t counted_of(const LogitBlock& block) {
  return std::clamp<std::int64_t>(block.vocabulary - block.first, 0, block.columns);
}

template <class T>
void fold_logits(const LogitBlock& block, const T* logits, const std::int32_t* targets, const float* before,
                 float* statistics, void* stream) {
  launch(fold_logits_kernel<T>, "head_statistics", loss_shape<T>({block.rows, 0, block.columns}), stream,
         block, counted_of(block), logits, targets, before, statistics,
         rows_are_aligned<T>(block.columns, logits));
}

void loss_of_statistics(std::int64_t rows, const float* statistics, const std::int32_t* targets, double* loss,
                        void* stream, BatchTargets batch) {
  launch(loss_of_statistics_kernel, "head_loss", one_block, stream, rows, statistics, targets, batch, loss);
}

void factors_of_statistics(std::int64_t rows, const float* statistics, const std::int32_t* targets,
                           double loss_scale, float* factors, void* stream, BatchTargets batch) {
  auto* count = static_cast<double*>(kept_scratch(stream, "head_loss_backward"));
  count_targets(batch.rows, batch.targets, count, stream);
  launch(factors_of_statistics_kernel, "head_loss_backward",
         {{blocks_for(rows, most_loss_threads)}, most_loss_threads}, stream, rows, statistics, targets, count,
         loss_scale, factors);
}

template <class T>
void differentiate_logits(const LogitBlock& block, const std::int32_t* targets, const float* factors,
                          T* logits, void* stream) {
  launch(differentiate_logits_kernel<T>, "head_backward", loss_shape<T>({block.rows, 0, block.columns}),
         stream, block, counted_of(block), targets, factors, logits,
         rows_are_aligned<T>(block.columns, logits));
}

template void fold_logits(const LogitBlock&, const float*, const std::int32_t*, const float*, float*, void*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, float*, void*);
template void fold_logits(const LogitBlock&, const Bfloat16*, const std::int32_t*, const float*, float*,
                          void*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, Bfloat16*, void*);
template void fold_logits(const LogitBlock&, const Float16*, const std::int32_t*, const float*, float*,
                          void*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, Float16*, void*);

STOWAGE_CUDA_KERNEL(fold_logits_kernel<float>);
STOWAGE_CUDA_KERNEL(differentiate_logits_kernel<float>);
STOWAGE_CUDA_KERNEL(fold_logits_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(differentiate_logits_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(fold_logits_kernel<Float16>);
STOWAGE_CUDA_KERNEL(differentiate_logits_kernel<Float16>);
STOWAGE_CUDA_KERNEL(loss_of_statistics_kernel);
STOWAGE_CUDA_KERNEL(factors_of_statistics_kernel);

}  // namespace stowage::cuda
