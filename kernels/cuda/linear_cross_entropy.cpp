#include <algorithm>

#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/math/bfloat16.h"
#include "stowage/bytes.h"

namespace stowage::cuda {
namespace {

constexpr const char* name = "linear_cross_entropy";

// Alignment of rows that are `bytes` apart, the first of which begins a tensor.
std::int64_t alignment_of_rows(std::int64_t bytes) {
  return std::min(static_cast<std::int64_t>(most_tensor_alignment), bytes & -bytes);
}

// A sum of 16 bits over chunks would lose small contributions of a chunk.
template <class T>
bool sums_apart(const LinearCrossEntropy<T>& of) {
  return sizeof(T) == 2 && of.chunk < of.shape.tokens;
}

template <class T>
Bytes sum_offset(const LinearCrossEntropy<T>& of) {
  return align_up(static_cast<Bytes>(of.chunk * of.shape.outputs) * sizeof(T), 256);
}

template <class T>
class Chunks {
 public:
  Chunks(const LinearCrossEntropy<T>& of, void* stream)
      : of_(of),
        stream_(stream),
        logits_(static_cast<T*>(of.workspace)),
        count_(static_cast<double*>(kept_scratch(stream, name))),
        alignment_(alignment_of_rows(of.chunk * of.shape.inputs * static_cast<std::int64_t>(sizeof(T)))) {}

  void run() const {
    const LinearShape& shape = of_.shape;
    const bool part = of_.batch_targets != nullptr;
    count_targets(part ? of_.batch : shape.tokens, part ? of_.batch_targets : of_.targets, count_, stream_);
    for (std::int64_t first = 0; first < shape.tokens; first += of_.chunk) {
      run_chunk(first, std::min(of_.chunk, shape.tokens - first));
    }
    if constexpr (sizeof(T) == 2) {
      if (!sums_apart(of_)) return;
      narrow(shape.inputs * shape.outputs, sum(), of_.dweight, stream_);
      if (of_.dbias != nullptr) narrow(shape.outputs, bias_sum(), of_.dbias, stream_);
    }
  }

 private:
  float* sum() const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(of_.workspace) + sum_offset(of_));
  }

  float* bias_sum() const { return sum() + of_.shape.inputs * of_.shape.outputs; }

  void run_chunk(std::int64_t first, std::int64_t rows) const {
    const LinearShape& shape = of_.shape;
    const std::int64_t at = first * shape.inputs;
    const Matrix x{of_.x + at, data_type<T>, false, alignment_};
    const Matrix dx{of_.dx + at, data_type<T>, false, alignment_};
    const Matrix logits{logits_, data_type<T>};
    Product product =
        named({rows, shape.outputs, shape.inputs, x, {of_.weight, data_type<T>, shape.transposed}, logits});
    if (of_.bias != nullptr) product.epilogue = Epilogue::bias;
    product.bias = of_.bias;
    multiply(product, stream_);
    const LossChunk chunk{
        first, shape.tokens, of_.targets, count_, scratch_for<double>(stream_, rows, name), of_.loss_scale};
    const std::int64_t vocabulary = of_.vocabulary == 0 ? shape.outputs : of_.vocabulary;
    cross_entropy_in_place({rows, vocabulary, shape.outputs}, chunk, logits_, stream_);
    add_losses(rows, chunk, of_.loss, stream_);
    multiply(
        named({rows, shape.inputs, shape.outputs, logits, {of_.weight, data_type<T>, !shape.transposed}, dx}),
        stream_);
    add_weight_gradient(x, rows, first > 0);
    if (of_.dbias != nullptr) add_bias_gradient(rows, first > 0);
  }

  void add_weight_gradient(Matrix x, std::int64_t rows, bool add) const {
    const LinearShape& shape = of_.shape;
    Matrix dlogits{logits_, data_type<T>};
    const Matrix dweight = sums_apart(of_) ? Matrix{sum(), DataType::f32} : Matrix{of_.dweight, data_type<T>};
    Product product;
    if (shape.transposed) {
      dlogits.transposed = true;
      product = named({shape.outputs, shape.inputs, rows, dlogits, x, dweight});
    } else {
      x.transposed = true;
      product = named({shape.inputs, shape.outputs, rows, x, dlogits, dweight});
    }
    product.add = add;
    multiply(product, stream_);
  }

  void add_bias_gradient(std::int64_t rows, bool add) const {
    const Rows shape{rows, of_.shape.outputs};
    if (sums_apart(of_)) {
      column_sum(shape, logits_, bias_sum(), stream_, add);
    } else {
      column_sum(shape, logits_, of_.dbias, stream_, add);
    }
  }

  static Product named(Product product) {
    product.name = name;
    return product;
  }

  const LinearCrossEntropy<T>& of_;
  void* stream_;
  T* logits_;
  double* count_;
  std::int64_t alignment_;
};

}  // namespace

template <class T>
Bytes workspace_bytes(const LinearCrossEntropy<T>& of) {
  if (!sums_apart(of)) return static_cast<Bytes>(of.chunk * of.shape.outputs) * sizeof(T);
  const std::int64_t rows = of.shape.inputs + (of.dbias != nullptr ? 1 : 0);
  return sum_offset(of) + static_cast<Bytes>(rows * of.shape.outputs) * sizeof(float);
}

template <class T>
void linear_cross_entropy(const LinearCrossEntropy<T>& of, void* stream) {
  Chunks<T>(of, stream).run();
}

template Bytes workspace_bytes(const LinearCrossEntropy<float>&);
template Bytes workspace_bytes(const LinearCrossEntropy<Bfloat16>&);
template void linear_cross_entropy(const LinearCrossEntropy<float>&, void*);
template void linear_cross_entropy(const LinearCrossEntropy<Bfloat16>&, void*);
template Bytes workspace_bytes(const LinearCrossEntropy<Float16>&);
template void linear_cross_entropy(const LinearCrossEntropy<Float16>&, void*);

}  // namespace stowage::cuda
