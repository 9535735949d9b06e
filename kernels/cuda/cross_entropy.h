// Softmax cross-entropy over rows of logits. T: float, Bfloat16 or Float16; softmax in f32, the loss in f64.
// Takes any width and alignment. Stream order. Throws DeviceError, and InvalidInput where the lane has no
// scratch.
//
// loss = mean over the targets >= 0 of log_sum_exp[n] - logits[n, target]; negative targets are ignored.
// Targets lie on the device and are not checked on the host: one beyond the vocabulary makes the loss NaN.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct Logits {
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;  // number of columns that count, the first of each row
  std::int64_t columns = 0;     // columns of a row, padding included
};

// All targets of the batch, of which the rows may be a part; targets >= 0 are counted.
struct BatchTargets {
  std::int64_t rows = 0;  // rows of the batch; 0: the logits have all rows
  const std::int32_t* targets = nullptr;
};

// loss f64{}: the rows' part of the mean; log_sum_exp[rows]
template <class T>
void cross_entropy(const Logits& shape, const T* logits, const std::int32_t* targets, double* loss,
                   float* log_sum_exp, void* stream, BatchTargets batch = {});

// dlogits = (softmax - one at the target) * loss_scale / number of counted targets; 0 in ignored rows and in
// padding. dlogits may be logits. The number of targets lies in kept_scratch.
template <class T>
void cross_entropy_backward(const Logits& shape, const T* logits, const std::int32_t* targets,
                            const float* log_sum_exp, T* dlogits, void* stream, BatchTargets batch = {},
                            double loss_scale = 1);

// Loss and gradient at once for a chunk of `shape.rows` rows, from row `first` of a batch: logits
// become dlogits. `row_losses` f64[shape.rows] and `count` f64{} are scratch; `targets` are all targets
// of the batch.
struct LossChunk {
  std::int64_t first = 0, batch = 0;  // rows
  const std::int32_t* targets = nullptr;
  const double* count = nullptr;  // number of targets, from count_targets
  double* row_losses = nullptr;
  double loss_scale = 1;  // factor on the gradients
};
template <class T>
void cross_entropy_in_place(const Logits& shape, const LossChunk& chunk, T* logits, void* stream);

// count f64{} = number of targets >= 0
void count_targets(std::int64_t rows, const std::int32_t* targets, double* count, void* stream);

// Adds the chunk's row losses, in a fixed order, to *loss (to 0 in the batch's first chunk); behind the last
// chunk the sum becomes the mean.
void add_losses(std::int64_t rows, const LossChunk& chunk, double* loss, void* stream);

// Logits that exist in blocks of columns, block by block. A row's statistics f32[3,rows] are the largest of
// its logits so far, the sum of exp(logit - largest), and its target's logit, -3e38 if no block had that;
// rows without a target have 0, 1, 0.

struct LogitBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // columns of this block, from column `first` of all logits on
  std::int64_t first = 0;
  std::int64_t vocabulary = 0;  // number of all columns that count, the first ones
};

// Adds a block's logits to the statistics `before`, or begins them where that is null. `statistics` may be
// `before`.
template <class T>
void fold_logits(const LogitBlock& block, const T* logits, const std::int32_t* targets, const float* before,
                 float* statistics, void* stream);

// loss f64{}: the rows' part of the mean, from the statistics of all blocks
void loss_of_statistics(std::int64_t rows, const float* statistics, const std::int32_t* targets, double* loss,
                        void* stream, BatchTargets batch);

// factors f32[3,rows]: log_sum_exp; then the factor loss_scale / count of exp(logit - log_sum_exp) and of the
// target's 1 in a logit's gradient, 0 in rows without a target. The number of targets lies in kept_scratch.
void factors_of_statistics(std::int64_t rows, const float* statistics, const std::int32_t* targets,
                           double loss_scale, float* factors, void* stream, BatchTargets batch);

// Replaces a block's logits by their gradients, 0 in padding.
template <class T>
void differentiate_logits(const LogitBlock& block, const std::int32_t* targets, const float* factors,
                          T* logits, void* stream);

// *sum = *a + *b
void add_loss(const double* a, const double* b, double* sum, void* stream);

}  // namespace stowage::cuda
