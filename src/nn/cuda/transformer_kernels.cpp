// Forward and backward of a Transformer: the adapters' calls of the card's kernels.
#include "src/nn/transformer_adapters.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/codec.h"
#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/kept_rows.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/swiglu.h"
#include "src/nn/codec_adapters.h"
#include "src/nn/cuda/adapter.h"
#include "src/nn/gated_adapters.h"
#include "src/nn/head_adapters.h"
#include "src/nn/kept_adapters.h"
#include "src/nn/rotary_adapters.h"

namespace stowage::cuda {
namespace {

struct CudaKernels {
  using EmbeddingShape = cuda::EmbeddingShape;
  using LinearShape = cuda::LinearShape;
  using FirstTokenShape = cuda::FirstTokenShape;
  using AttentionShape = cuda::AttentionShape;
  using TopTokensShape = cuda::TopTokensShape;
  using KeptRows = cuda::KeptRows;
  using Logits = cuda::Logits;
  using LogitBlock = cuda::LogitBlock;
  using GeluForm = cuda::GeluForm;
  template <class T>
  using LinearCrossEntropy = cuda::LinearCrossEntropy<T>;
  template <class T>
  using Statistic = float;
  using TokenSlice = KernelCall::TokenSlice;

  template <template <class> class Adapter>
  static void launch(const LaunchArguments& arguments) {
    launch_adapter<Adapter>(arguments);
  }

  static void embedding(void* stream, auto... of) { cuda::embedding(of..., stream); }
  static void embedding_rows(void* stream, auto... of) { cuda::embedding_rows(of..., stream); }
  static void embedding_backward(void* stream, auto... of) { cuda::embedding_backward(of..., stream); }
  static void position_backward(void* stream, auto... of) { cuda::position_backward(of..., stream); }

  static void layer_norm(void* stream, std::int64_t rows, std::int64_t width, auto... of) {
    cuda::layer_norm({rows, width}, of..., stream);
  }
  template <class T>
  static void layer_norm_backward(void* stream, std::int64_t rows, std::int64_t width, const T* x,
                                  auto... rest) {
    cuda::layer_norm_backward({rows, width}, NormGradient<T>{x, rest...}, stream);
  }
  static void layer_norm_backward_parameters(void* stream, std::int64_t rows, std::int64_t width,
                                             auto... of) {
    cuda::layer_norm_backward_parameters({rows, width}, of..., stream);
  }

  static void rms_norm(void* stream, std::int64_t rows, std::int64_t width, auto... of) {
    cuda::rms_norm({rows, width}, of..., stream);
  }
  template <class T>
  static void rms_norm_backward(void* stream, std::int64_t rows, std::int64_t width, const T* x,
                                const T* gain, const float* rstd, auto... rest) {
    cuda::rms_norm_backward({rows, width}, NormGradient<T>{x, gain, nullptr, rstd, rest...}, stream);
  }
  static void rms_norm_backward_parameters(void* stream, std::int64_t rows, std::int64_t width, auto... of) {
    cuda::rms_norm_backward_parameters({rows, width}, of..., stream);
  }
  static void swiglu(void* stream, auto... of) { cuda::swiglu(of..., stream); }
  static void swiglu_backward(void* stream, auto... of) { cuda::swiglu_backward(of..., stream); }

  static void linear(void* stream, auto... of) { cuda::linear(of..., stream); }
  static void linear_backward_input(void* stream, auto... of) { cuda::linear_backward_input(of..., stream); }
  static void linear_backward_weight(void* stream, auto... of) {
    cuda::linear_backward_weight(of..., stream);
  }
  static void linear_backward_bias(void* stream, std::int64_t rows, std::int64_t outputs, auto... of) {
    cuda::column_sum({rows, outputs}, of..., stream);
  }
  static void linear_gelu(void* stream, auto... of) { cuda::linear_gelu(of..., stream); }

  static void gelu(void* stream, auto... of) { cuda::gelu(of..., stream); }
  static void gelu_backward(void* stream, auto... of) { cuda::gelu_backward(of..., stream); }
  static void gelu_backward_bias(void* stream, GeluForm form, std::int64_t rows, std::int64_t width,
                                 auto... of) {
    cuda::gelu_backward_bias(form, {rows, width}, of..., stream);
  }
  static void tanh(void* stream, auto... of) { cuda::tanh(of..., stream); }
  static void tanh_backward(void* stream, auto... of) { cuda::tanh_backward(of..., stream); }
  static void first_token(void* stream, auto... of) { cuda::first_token(of..., stream); }
  static void first_token_backward(void* stream, auto... of) { cuda::first_token_backward(of..., stream); }

  static void attention(void* stream, auto... of) { cuda::attention(of..., stream); }
  template <class T>
  static void attention_backward(void* stream, const AttentionShape& shape, const T* qkv, auto... rest) {
    cuda::attention_backward(shape, AttentionGradient<T>{qkv, rest...}, stream);
  }

  static void attention_scores(void* stream, auto... of) { cuda::attention_scores(of..., stream); }
  static void top_tokens(void* stream, auto... of) { cuda::top_tokens(of..., stream); }
  static void take_rows(void* stream, auto... of) { cuda::take_rows(of..., stream); }
  static void take_rows_backward(void* stream, auto... of) { cuda::take_rows_backward(of..., stream); }
  static void add_rows(void* stream, auto... of) { cuda::add_rows(of..., stream); }

  static void rotary(void* stream, const RotaryShape& shape, auto... of) {
    cuda::rotary(shape, of..., stream);
  }
  static void rotary_backward(void* stream, const RotaryShape& shape, auto... of) {
    cuda::rotary_backward(shape, of..., stream);
  }
  static void normed_rotary(void* stream, const RotaryShape& shape, auto... of) {
    cuda::normed_rotary(shape, of..., stream);
  }
  template <class T>
  static void normed_rotary_backward(void* stream, const RotaryShape& shape, const T* qkv, auto... rest) {
    cuda::normed_rotary_backward(shape, NormedRotaryGradient<T>{qkv, rest...}, stream);
  }

  static void dropout(void* stream, auto... of) { cuda::dropout(of..., stream); }
  static void add(void* stream, auto... of) { cuda::add(of..., stream); }
  static void tree_sum(void* stream, auto... of) { cuda::tree_sum(of..., stream); }
  static void add_dropout(void* stream, auto... of) { cuda::add_dropout(of..., stream); }
  static void add_loss(void* stream, auto... of) { cuda::add_loss(of..., stream); }

  template <class T>
  static void cross_entropy(void* stream, const Logits& shape, const T* logits, const TokenSlice& targets,
                            double* loss, float* log_sum_exp) {
    cuda::cross_entropy(shape, logits, targets.data(), loss, log_sum_exp, stream,
                        {targets.batch, targets.all});
  }
  template <class T>
  static void cross_entropy_backward(void* stream, const Logits& shape, const T* logits,
                                     const TokenSlice& targets, const float* log_sum_exp, T* dlogits,
                                     double loss_scale) {
    cuda::cross_entropy_backward(shape, logits, targets.data(), log_sum_exp, dlogits, stream,
                                 {targets.batch, targets.all}, loss_scale);
  }

  template <class T>
  static void fold_logits(void* stream, const LogitBlock& block, const T* logits, const TokenSlice& targets,
                          const float* before, float* statistics) {
    cuda::fold_logits(block, logits, targets.data(), before, statistics, stream);
  }
  static void loss_of_statistics(void* stream, std::int64_t rows, const float* statistics,
                                 const TokenSlice& targets, double* loss) {
    cuda::loss_of_statistics(rows, statistics, targets.data(), loss, stream, {targets.batch, targets.all});
  }
  static void factors_of_statistics(void* stream, std::int64_t rows, const float* statistics,
                                    const TokenSlice& targets, double loss_scale, float* factors) {
    cuda::factors_of_statistics(rows, statistics, targets.data(), loss_scale, factors, stream,
                                {targets.batch, targets.all});
  }
  template <class T>
  static void differentiate_logits(void* stream, const LogitBlock& block, const TokenSlice& targets,
                                   const float* factors, T* logits) {
    cuda::differentiate_logits(block, targets.data(), factors, logits, stream);
  }

  static void encode(void* stream, auto... of) { cuda::encode(of..., stream); }
  static void decode(void* stream, auto... of) { cuda::decode(of..., stream); }

  template <class T>
  static Bytes workspace_bytes(const LinearCrossEntropy<T>& of) {
    return cuda::workspace_bytes(of);
  }
  template <class T>
  static void linear_cross_entropy(void* stream, LinearCrossEntropy<T> of, void* workspace) {
    of.workspace = workspace;
    cuda::linear_cross_entropy(of, stream);
  }
};

}  // namespace

void add_transformer_kernels(LaunchTable& table) {
  nn::TransformerAdapters<CudaKernels>::add_to(table);
  nn::GatedAdapters<CudaKernels>::add_to(table);
  nn::RotaryAdapters<CudaKernels>::add_to(table);
  nn::HeadAdapters<CudaKernels>::add_to(table);
  nn::CodecAdapters<CudaKernels>::add_to(table);
  nn::KeptAdapters<CudaKernels>::add_to(table);
}

}  // namespace stowage::cuda
