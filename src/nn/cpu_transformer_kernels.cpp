// Forward and backward of a Transformer: the adapters' calls of the CPU's kernels.
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_scores.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/kept_rows.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/rotary.h"
#include "kernels/cpu/swiglu.h"
#include "src/nn/codec_adapters.h"
#include "src/nn/cpu_adapter.h"
#include "src/nn/gated_adapters.h"
#include "src/nn/head_adapters.h"
#include "src/nn/kept_adapters.h"
#include "src/nn/rotary_adapters.h"
#include "src/nn/transformer_adapters.h"
#include "stowage/bytes.h"

namespace stowage::cpu {
namespace {

// Ignores the stream and attention's workspace: only cards use them.
struct CpuKernels {
  using EmbeddingShape = cpu::EmbeddingShape;
  using LinearShape = cpu::LinearShape;
  using FirstTokenShape = cpu::FirstTokenShape;
  using AttentionShape = cpu::AttentionShape;
  using TopTokensShape = cpu::TopTokensShape;
  using KeptRows = cpu::KeptRows;
  using Logits = cpu::Logits;
  using LogitBlock = cpu::LogitBlock;
  using GeluForm = cpu::GeluForm;
  template <class T>
  using LinearCrossEntropy = cpu::LinearCrossEntropy<T>;
  template <class T>
  using Statistic = cpu::Sum<T>;
  using TokenSlice = KernelCall::TokenSlice;

  template <template <class> class Adapter>
  static void launch(const LaunchArguments& arguments) {
    launch_adapter<Adapter>(arguments);
  }

  static void embedding(void*, auto... of) { cpu::embedding(of...); }
  static void embedding_rows(void*, auto... of) { cpu::embedding_rows(of...); }
  static void embedding_backward(void*, auto... of) { cpu::embedding_backward(of...); }
  static void position_backward(void*, auto... of) { cpu::position_backward(of...); }

  static void layer_norm(void*, auto... of) { cpu::layer_norm(of...); }
  template <class T>
  static void layer_norm_backward(void*, std::int64_t rows, std::int64_t width, const T* x, const T* gain,
                                  const Sum<T>* mean, const Sum<T>* rstd, const T* dy, const T* before, T* dx,
                                  T* dgain, T* dbias) {
    if (dgain != nullptr)  // computed first, since dx may be dy
      cpu::layer_norm_backward_parameters(rows, width, x, mean, rstd, dy, dgain, dbias);
    cpu::layer_norm_backward(rows, width, x, gain, mean, rstd, dy, before, dx);
  }
  static void layer_norm_backward_parameters(void*, auto... of) {
    cpu::layer_norm_backward_parameters(of...);
  }

  static void rms_norm(void*, auto... of) { cpu::rms_norm(of...); }
  template <class T>
  static void rms_norm_backward(void*, std::int64_t rows, std::int64_t width, const T* x, const T* gain,
                                const Sum<T>* rstd, const T* dy, const T* before, T* dx, T* dgain) {
    if (dgain != nullptr)  // computed first, since dx may be dy
      cpu::rms_norm_backward_parameters(rows, width, x, rstd, dy, dgain);
    cpu::rms_norm_backward(rows, width, x, gain, rstd, dy, before, dx);
  }
  static void rms_norm_backward_parameters(void*, auto... of) { cpu::rms_norm_backward_parameters(of...); }
  static void swiglu(void*, auto... of) { cpu::swiglu(of...); }
  static void swiglu_backward(void*, auto... of) { cpu::swiglu_backward(of...); }

  static void linear(void*, auto... of) { cpu::linear(of...); }
  static void linear_backward_input(void*, auto... of) { cpu::linear_backward_input(of...); }
  static void linear_backward_weight(void*, auto... of) { cpu::linear_backward_weight(of...); }
  template <class T>
  static void linear_backward_bias(void*, std::int64_t rows, std::int64_t outputs, const T* dy, T* dbias) {
    cpu::linear_backward_bias({rows, 0, outputs}, dy, dbias);
  }
  template <class T>
  static void linear_gelu(void*, const LinearShape& shape, GeluForm form, const T* x, const T* weight,
                          const T* bias, T* before, T* y) {
    cpu::linear(shape, x, weight, bias, before);
    cpu::gelu<T>(form, shape.tokens * shape.outputs, before, y);
  }

  static void gelu(void*, auto... of) { cpu::gelu(of...); }
  static void gelu_backward(void*, auto... of) { cpu::gelu_backward(of...); }
  template <class T>
  static void gelu_backward_bias(void*, GeluForm form, std::int64_t rows, std::int64_t width, const T* x,
                                 const T* dy, T* dx, T* dbias) {
    cpu::gelu_backward(form, rows * width, x, dy, dx);
    cpu::column_sum(rows, width, dx, dbias);
  }
  static void tanh(void*, auto... of) { cpu::tanh(of...); }
  static void tanh_backward(void*, auto... of) { cpu::tanh_backward(of...); }
  static void first_token(void*, auto... of) { cpu::first_token(of...); }
  static void first_token_backward(void*, auto... of) { cpu::first_token_backward(of...); }

  static void attention(void*, auto... of) { cpu::attention(of...); }
  template <class T>
  static void attention_backward(void*, const AttentionShape& shape, const T* qkv, const T* out,
                                 const Sum<T>* log_sum_exp, const T* dout, T* dqkv, void*, std::size_t) {
    cpu::attention_backward(shape, qkv, out, log_sum_exp, dout, dqkv);
  }

  static void attention_scores(void*, auto... of) { cpu::attention_scores(of...); }
  static void top_tokens(void*, auto... of) { cpu::top_tokens(of...); }
  static void take_rows(void*, auto... of) { cpu::take_rows(of...); }
  static void take_rows_backward(void*, auto... of) { cpu::take_rows_backward(of...); }
  static void add_rows(void*, auto... of) { cpu::add_rows(of...); }

  static void rotary(void*, const RotaryShape& shape, auto... of) { cpu::rotary(shape, of...); }
  static void rotary_backward(void*, const RotaryShape& shape, auto... of) {
    cpu::rotary_backward(shape, of...);
  }
  static void normed_rotary(void*, const RotaryShape& shape, auto... of) { cpu::normed_rotary(shape, of...); }
  template <class T>
  static void normed_rotary_backward(void*, const RotaryShape& shape, const T* qkv, auto... rest) {
    cpu::normed_rotary_backward(shape, NormedRotaryGradient<T>{qkv, rest...});
  }

  static void dropout(void*, auto... of) { cpu::dropout(of...); }
  static void add(void*, auto... of) { cpu::add(of...); }
  static void tree_sum(void*, auto... of) { cpu::tree_sum(of...); }
  static void add_dropout(void*, auto... of) { cpu::add_dropout(of...); }
  static void add_loss(void*, const double* a, const double* b, double* sum) { *sum = *a + *b; }

  template <class T>
  static void cross_entropy(void*, const Logits& shape, const T* logits, const TokenSlice& targets,
                            double* loss, Sum<T>* log_sum_exp) {
    cpu::cross_entropy(shape, logits, targets.data(), loss, log_sum_exp, counted(targets, shape));
  }
  template <class T>
  static void cross_entropy_backward(void*, const Logits& shape, const T* logits, const TokenSlice& targets,
                                     const Sum<T>* log_sum_exp, T* dlogits, double loss_scale) {
    cpu::cross_entropy_backward(shape, logits, targets.data(), log_sum_exp, dlogits, counted(targets, shape),
                                loss_scale);
  }
  static std::int64_t counted(const TokenSlice& targets, const Logits& shape) {
    return cpu::counted_targets(targets.batch, shape.vocabulary, targets.all);
  }

  template <class T>
  static void fold_logits(void*, const LogitBlock& block, const T* logits, const TokenSlice& targets,
                          const Sum<T>* before, Sum<T>* statistics) {
    cpu::counted_targets(block.rows, block.vocabulary, targets.data());  // refuses what is no token
    cpu::fold_logits(block, logits, targets.data(), before, statistics);
  }
  template <class S>
  static void loss_of_statistics(void*, std::int64_t rows, const S* statistics, const TokenSlice& targets,
                                 double* loss) {
    cpu::loss_of_statistics(rows, statistics, targets.data(), counted(targets), loss);
  }
  template <class S>
  static void factors_of_statistics(void*, std::int64_t rows, const S* statistics, const TokenSlice& targets,
                                    double loss_scale, S* factors) {
    cpu::factors_of_statistics(rows, statistics, targets.data(), counted(targets), loss_scale, factors);
  }
  template <class T>
  static void differentiate_logits(void*, const LogitBlock& block, const TokenSlice& targets,
                                   const Sum<T>* factors, T* logits) {
    cpu::differentiate_logits(block, targets.data(), factors, logits);
  }
  // Any vocabulary will do: the ops before have refused targets that are no tokens.
  static std::int64_t counted(const TokenSlice& targets) {
    return cpu::counted_targets(targets.batch, std::numeric_limits<std::int64_t>::max(), targets.all);
  }

  static void encode(void*, auto... of) { cpu::encode(of...); }
  static void decode(void*, auto... of) { cpu::decode(of...); }

  template <class T>
  static Bytes workspace_bytes(const LinearCrossEntropy<T>& of) {
    if (!of.sums_apart()) return static_cast<Bytes>(of.chunk * of.shape.outputs) * sizeof(T);
    const std::int64_t rows = of.shape.inputs + (of.dbias != nullptr ? 1 : 0);
    return sum_offset(of) + static_cast<Bytes>(rows * of.shape.outputs) * sizeof(Sum<T>);
  }
  // The sums of gradients, behind the logits in the workspace.
  template <class T>
  static Bytes sum_offset(const LinearCrossEntropy<T>& of) {
    return align_up(static_cast<Bytes>(of.chunk * of.shape.outputs) * sizeof(T), 256);
  }
  template <class T>
  static void linear_cross_entropy(void*, LinearCrossEntropy<T> of, void* workspace) {
    of.logits = static_cast<T*>(workspace);
    if (of.sums_apart()) {
      of.dweight_sum = reinterpret_cast<Sum<T>*>(static_cast<std::byte*>(workspace) + sum_offset(of));
      if (of.dbias != nullptr) of.dbias_sum = of.dweight_sum + of.shape.inputs * of.shape.outputs;
    }
    cpu::linear_cross_entropy(of);
  }
};

}  // namespace

void add_transformer_kernels(LaunchTable& table) {
  nn::TransformerAdapters<CpuKernels>::add_to(table);
  nn::GatedAdapters<CpuKernels>::add_to(table);
  nn::RotaryAdapters<CpuKernels>::add_to(table);
  nn::HeadAdapters<CpuKernels>::add_to(table);
  nn::CodecAdapters<CpuKernels>::add_to(table);
  nn::KeptAdapters<CpuKernels>::add_to(table);
}

}  // namespace stowage::cpu
