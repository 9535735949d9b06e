#include "stowage/launch_table.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/first_token.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "src/nn/cpu_adapter.h"
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
    const bool parameters = call.writes() > 1;
    call.expect(5, 6, parameters ? 3 : 1);
    if (parameters) {  // first, since dx may be dy
      cpu::layer_norm_backward_parameters(call.rows(0), call.columns(0), call.read<T>(0), call.read<T>(2),
                                          call.read<T>(3), call.read<T>(4), call.write<T>(1),
                                          call.write<T>(2));
    }
    cpu::layer_norm_backward(call.rows(0), call.columns(0), call.read<T>(0), call.read<T>(1), call.read<T>(2),
                             call.read<T>(3), call.read<T>(4), call.read_if_present<T>(5), call.write<T>(0));
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
    call.expect(2, 2, 1, 2);
    cpu::gelu_backward(gelu_form(call), call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
    if (call.writes() == 2)
      cpu::column_sum<T>(call.rows(0), call.columns(0), call.write<T>(0), call.write<T>(1));
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
  shape.padded_at_end = shape.seen != nullptr && call.integer_if_present("padding_at_end") != 0;
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
    if (call.has("probability")) {
      return cpu::add_dropout(call.random(), call.real("probability"), call.elements(0), call.read<T>(0),
                              call.read<T>(1), call.write<T>(0));
    }
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

void launch_add_loss(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(2, 2, 1);
  *call.write<double>(0) = *call.read<double>(0) + *call.read<double>(1);
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
  table.add("embedding", cpu::launch_adapter<Embedding>);
  table.add("embedding_backward", cpu::launch_adapter<EmbeddingBackward>);
  table.add("position_backward", cpu::launch_adapter<PositionBackward>);
  table.add("layer_norm", cpu::launch_adapter<LayerNorm>);
  table.add("layer_norm_backward", cpu::launch_adapter<LayerNormBackward>);
  table.add("layer_norm_backward_parameters", cpu::launch_adapter<LayerNormBackwardParameters>);
  table.add("linear", cpu::launch_adapter<Linear>);
  table.add("linear_backward_input", cpu::launch_adapter<LinearBackwardInput>);
  table.add("linear_backward_weight", cpu::launch_adapter<LinearBackwardWeight>);
  table.add("linear_backward_bias", cpu::launch_adapter<LinearBackwardBias>);
  table.add("linear_gelu", cpu::launch_adapter<LinearGelu>);
  table.add("gelu", cpu::launch_adapter<Gelu>);
  table.add("gelu_backward", cpu::launch_adapter<GeluBackward>);
  table.add("tanh", cpu::launch_adapter<Tanh>);
  table.add("tanh_backward", cpu::launch_adapter<TanhBackward>);
  table.add("first_token", cpu::launch_adapter<FirstToken>);
  table.add("first_token_backward", cpu::launch_adapter<FirstTokenBackward>);
  table.add("attention", cpu::launch_adapter<Attention>);
  table.add("attention_backward", cpu::launch_adapter<AttentionBackward>);
  table.add("dropout", cpu::launch_adapter<Dropout>);
  table.add("add", cpu::launch_adapter<Add>);
  table.add("accumulate", cpu::launch_adapter<Add>);
  table.add("cross_entropy", cpu::launch_adapter<CrossEntropy>);
  table.add("cross_entropy_backward", cpu::launch_adapter<CrossEntropyBackward>);
  table.add("linear_cross_entropy", cpu::launch_adapter<LinearCrossEntropy>);
  table.add("add_loss", launch_add_loss);
  cpu::add_update_kernels(table);
  return table;
}

}  // namespace stowage
