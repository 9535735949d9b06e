#include "stowage/launch_table.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/first_token.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/optimizer.h"
#include "src/nn/kernel_call.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Each struct binds one kernel, for a work type T, to the operands that launch_table.h gives it.

template <class T>
struct Embedding {
  static void run(const KernelCall& call) {
    call.expect(2, 3, 1);
    cpu::EmbeddingShape shape{call.written_rows(0), call.columns(1), call.rows(1)};
    if (call.reads() == 3) shape.sequence = call.positive("sequence");
    cpu::embedding(shape, call.tokens(0, shape.tokens).data(), call.read<T>(1), call.read_if_present<T>(2),
                   call.write<T>(0));
  }
};

template <class T>
struct EmbeddingBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    const cpu::EmbeddingShape shape{call.rows(1), call.columns(1), call.written_rows(0)};
    cpu::embedding_backward(shape, call.tokens(0, shape.tokens).data(), call.read<T>(1), call.write<T>(0));
  }
};

template <class T>
struct PositionBackward {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    const cpu::EmbeddingShape shape{call.rows(0), call.columns(0), 0, call.positive("sequence")};
    cpu::position_backward(shape, call.read<T>(0), call.write<T>(0));
  }
};

template <class T>
struct LayerNorm {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 3);
    cpu::layer_norm(call.rows(0), call.columns(0), call.real("epsilon"), call.read<T>(0), call.read<T>(1),
                    call.read<T>(2), call.write<T>(0), call.write<T>(1), call.write<T>(2));
  }
};

template <class T>
struct LayerNormBackward {
  static void run(const KernelCall& call) {
    call.expect(5, 5, 1);
    cpu::layer_norm_backward(call.rows(0), call.columns(0), call.read<T>(0), call.read<T>(1), call.read<T>(2),
                             call.read<T>(3), call.read<T>(4), call.write<T>(0));
  }
};

template <class T>
struct LayerNormBackwardParameters {
  static void run(const KernelCall& call) {
    call.expect(4, 4, 2);
    cpu::layer_norm_backward_parameters(call.rows(0), call.columns(0), call.read<T>(0), call.read<T>(1),
                                        call.read<T>(2), call.read<T>(3), call.write<T>(0), call.write<T>(1));
  }
};

// With the weight as operand 1: [inputs, outputs], or the other way round.
cpu::LinearShape shape_by_weight(const KernelCall& call) {
  const bool transposed = call.integer("transposed") != 0;
  const std::int64_t first = call.rows(1);
  const std::int64_t second = call.columns(1);
  return {call.rows(0), transposed ? second : first, transposed ? first : second, transposed};
}

template <class T>
struct Linear {
  static void run(const KernelCall& call) {
    call.expect(2, 3, 1);
    cpu::linear(shape_by_weight(call), call.read<T>(0), call.read<T>(1), call.read_if_present<T>(2),
                call.write<T>(0));
  }
};

template <class T>
struct LinearBackwardInput {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    cpu::linear_backward_input(shape_by_weight(call), call.read<T>(0), call.read<T>(1), call.write<T>(0));
  }
};

template <class T>
struct LinearBackwardWeight {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    const cpu::LinearShape shape{call.rows(0), call.columns(0), call.columns(1),
                                 call.integer("transposed") != 0};
    cpu::linear_backward_weight(shape, call.read<T>(0), call.read<T>(1), call.write<T>(0));
  }
};

template <class T>
struct LinearBackwardBias {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    const cpu::LinearShape shape{call.rows(0), 0, call.columns(0)};
    cpu::linear_backward_bias(shape, call.read<T>(0), call.write<T>(0));
  }
};

cpu::GeluForm gelu_form(const KernelCall& call) {
  const std::string& form = call.text("form");
  if (form == "tanh") return cpu::GeluForm::tanh;
  if (form == "erf") return cpu::GeluForm::erf;
  call.fail("has the form '" + form + "', which is neither 'tanh' nor 'erf'");
}

template <class T>
struct Gelu {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    cpu::gelu(gelu_form(call), call.elements(0), call.read<T>(0), call.write<T>(0));
  }
};

template <class T>
struct GeluBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    cpu::gelu_backward(gelu_form(call), call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
  }
};

template <class T>
struct Tanh {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    cpu::tanh(call.elements(0), call.read<T>(0), call.write<T>(0));
  }
};

template <class T>
struct TanhBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    cpu::tanh_backward(call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
  }
};

// With `tokens` rows of all tokens and `samples` of the first ones.
cpu::FirstTokenShape first_token_shape(const KernelCall& call, std::int64_t samples, std::int64_t tokens) {
  const cpu::FirstTokenShape shape{samples, call.positive("sequence"), call.columns(0)};
  if (samples * shape.sequence != tokens) call.fail("needs whole sequences");
  return shape;
}

template <class T>
struct FirstToken {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    cpu::first_token(first_token_shape(call, call.written_rows(0), call.rows(0)), call.read<T>(0),
                     call.write<T>(0));
  }
};

template <class T>
struct FirstTokenBackward {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    cpu::first_token_backward(first_token_shape(call, call.rows(0), call.written_rows(0)), call.read<T>(0),
                              call.write<T>(0));
  }
};

// With qkv as operand 0, and what is seen as operand `seen` if it is there.
cpu::AttentionShape attention_shape(const KernelCall& call, std::size_t seen) {
  cpu::AttentionShape shape;
  shape.heads = call.positive("heads");
  shape.sequence = call.positive("sequence");
  shape.samples = call.rows(0) / shape.sequence;
  shape.width = call.columns(0) / 3;
  shape.causal = call.integer("causal") != 0;
  shape.dropout = call.real("dropout");
  shape.stream = call.random();
  if (call.columns(0) != 3 * shape.width || shape.width % shape.heads != 0) {
    call.fail("needs queries, keys and values that divide into its heads");
  }
  if (call.rows(0) % shape.sequence != 0) call.fail("needs whole sequences");
  if (seen < call.reads()) shape.seen = call.tokens(seen, call.rows(0)).data();
  return shape;
}

template <class T>
struct LinearGelu {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 2);
    cpu::linear(shape_by_weight(call), call.read<T>(0), call.read<T>(1), call.read<T>(2), call.write<T>(0));
    cpu::gelu<T>(gelu_form(call), call.written_elements(0), call.write<T>(0), call.write<T>(1));
  }
};

template <class T>
struct Attention {
  static void run(const KernelCall& call) {
    call.expect(1, 2, 2);
    cpu::attention(attention_shape(call, 1), call.read<T>(0), call.write<T>(0), call.write<T>(1));
  }
};

template <class T>
struct AttentionBackward {
  static void run(const KernelCall& call) {
    call.expect(4, 5, 1, 2);
    cpu::attention_backward(attention_shape(call, 4), call.read<T>(0), call.read<T>(1), call.read<T>(2),
                            call.read<T>(3), call.write<T>(0));
  }
};

template <class T>
struct Dropout {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    cpu::dropout(call.random(), call.real("probability"), call.elements(0), call.read<T>(0),
                 call.write<T>(0));
  }
};

template <class T>
struct Add {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    cpu::add(call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
  }
};

cpu::Logits logits_shape(const KernelCall& call) {
  return {call.rows(0), call.vocabulary(call.columns(0)), call.columns(0)};
}

template <class T>
struct CrossEntropy {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 2);
    const cpu::Logits shape = logits_shape(call);
    const KernelCall::TokenSlice targets = call.tokens(1, shape.rows);
    cpu::cross_entropy(shape, call.read<T>(0), targets.data(), call.write<double>(0), call.write<T>(1),
                       cpu::counted_targets(targets.batch, shape.vocabulary, targets.all));
  }
};

template <class T>
struct CrossEntropyBackward {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 1);
    const cpu::Logits shape = logits_shape(call);
    const KernelCall::TokenSlice targets = call.tokens(1, shape.rows);
    cpu::cross_entropy_backward(shape, call.read<T>(0), targets.data(), call.read<T>(2), call.write<T>(0),
                                cpu::counted_targets(targets.batch, shape.vocabulary, targets.all));
  }
};

template <class T>
struct LinearCrossEntropy {
  static void run(const KernelCall& call) {
    const bool has_bias = call.reads() == 4;
    call.expect(3, 4, has_bias ? 5 : 4);
    cpu::LinearCrossEntropy<T> of;
    of.shape = shape_by_weight(call);
    of.vocabulary = call.vocabulary(of.shape.outputs);
    of.bias = call.read_if_present<T>(3);
    if (has_bias) of.dbias = call.write<T>(4);
    of.chunk = call.positive("chunk");
    of.x = call.read<T>(0);
    of.weight = call.read<T>(1);
    const KernelCall::TokenSlice targets = call.tokens(2, of.shape.tokens);
    of.targets = targets.data();
    of.batch_targets = targets.all;
    of.batch = targets.batch;
    of.loss = call.write<double>(0);
    of.dx = call.write<T>(1);
    of.dweight = call.write<T>(2);
    of.logits = call.workspace<T>(3, static_cast<Bytes>(of.chunk * of.shape.outputs) * sizeof(T));
    cpu::linear_cross_entropy(of);
  }
};

template <class T>
struct SquareSum {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    *call.write<double>(0) = cpu::square_sum(call.elements(0), call.read<T>(0));
  }
};

AdamWSettings adamw_settings(const KernelCall& call) {
  return {call.real("beta1"),        call.real("beta2"),        call.real("epsilon"),
          call.real("weight_decay"), call.step().learning_rate, call.step().step};
}

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    call.expect(5, 5, 3);
    const cpu::AdamWOperands<T> operands{call.read<T>(0),  call.read<T>(1),  call.read<T>(2), call.read<T>(3),
                                         call.write<T>(0), call.write<T>(1), call.write<T>(2)};
    const double scale = call.read<double>(4)[1];
    cpu::adamw(adamw_settings(call), scale, call.elements(0), operands);
  }
};

template <>
struct AdamWUpdate<Bfloat16> {
  static void run(const KernelCall& call) {
    call.expect(6, 6, 4);
    const cpu::SplitAdamWOperands operands{
        call.read<Bfloat16>(0),      call.read<Bfloat16>(1), call.read<std::int16_t>(5),
        call.read<float>(2),         call.read<float>(3),    call.write<Bfloat16>(0),
        call.write<std::int16_t>(3), call.write<float>(1),   call.write<float>(2)};
    const double scale = call.read<double>(4)[1];
    cpu::adamw(adamw_settings(call), scale, call.elements(0), operands);
  }
};

template <template <class> class Adapter>
void launch(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  switch (call.work_type()) {
    case DataType::f32:
      return Adapter<float>::run(call);
    case DataType::f64:
      return Adapter<double>::run(call);
    default:
      call.fail(
          fmt::format("computes in {}, but the CPU's kernels take f32 and f64; use a CUDA device, or "
                      "build the graph in f32",
                      to_string(call.work_type())));
  }
}

// The update phase runs on the host for any work type.
template <template <class> class Adapter>
void launch_update(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  if (call.work_type() == DataType::bf16) return Adapter<Bfloat16>::run(call);
  launch<Adapter>(arguments);
}

void launch_add_loss(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(2, 2, 1);
  *call.write<double>(0) = *call.read<double>(0) + *call.read<double>(1);
}

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  cpu::ClippedNorm norm;
  for (std::size_t i = 0; i < call.reads(); ++i) norm.add(*call.read<double>(i));
  double* result = call.write<double>(0);
  result[0] = norm.norm();
  result[1] = norm.scale(call.real("clip"));
}

}  // namespace

void LaunchTable::add(std::string name, Kernel kernel) { kernels_[std::move(name)] = kernel; }

Kernel LaunchTable::find(const Op& op) const {
  const auto found = kernels_.find(op.kernel);
  if (found != kernels_.end()) return found->second;
  throw InvalidInput("op '" + op.name + "' needs the kernel '" + op.kernel +
                     "', which this device's launch table lacks; add it with LaunchTable::add");
}

LaunchTable cpu_launch_table() {
  LaunchTable table;
  table.add("embedding", launch<Embedding>);
  table.add("embedding_backward", launch<EmbeddingBackward>);
  table.add("position_backward", launch<PositionBackward>);
  table.add("layer_norm", launch<LayerNorm>);
  table.add("layer_norm_backward", launch<LayerNormBackward>);
  table.add("layer_norm_backward_parameters", launch<LayerNormBackwardParameters>);
  table.add("linear", launch<Linear>);
  table.add("linear_backward_input", launch<LinearBackwardInput>);
  table.add("linear_backward_weight", launch<LinearBackwardWeight>);
  table.add("linear_backward_bias", launch<LinearBackwardBias>);
  table.add("linear_gelu", launch<LinearGelu>);
  table.add("gelu", launch<Gelu>);
  table.add("gelu_backward", launch<GeluBackward>);
  table.add("tanh", launch<Tanh>);
  table.add("tanh_backward", launch<TanhBackward>);
  table.add("first_token", launch<FirstToken>);
  table.add("first_token_backward", launch<FirstTokenBackward>);
  table.add("attention", launch<Attention>);
  table.add("attention_backward", launch<AttentionBackward>);
  table.add("dropout", launch<Dropout>);
  table.add("add", launch<Add>);
  table.add("accumulate", launch<Add>);
  table.add("cross_entropy", launch<CrossEntropy>);
  table.add("cross_entropy_backward", launch<CrossEntropyBackward>);
  table.add("linear_cross_entropy", launch<LinearCrossEntropy>);
  table.add("add_loss", launch_add_loss);
  table.add("square_sum", launch_update<SquareSum>);
  table.add("clip", launch_clip);
  table.add("adamw", launch_update<AdamWUpdate>);
  return table;
}

}  // namespace stowage
