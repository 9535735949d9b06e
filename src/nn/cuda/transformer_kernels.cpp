// Forward and backward of a Transformer. Each struct binds one kernel, for a work type T, to the operands
// that include/stowage/launch_table.h gives it.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/first_token.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/linear.h"
#include "src/nn/cuda/adapter.h"

namespace stowage::cuda {
namespace {

template <class T>
struct Embedding {
  static void run(const KernelCall& call) {
    call.expect(2, 3, 1);
    EmbeddingShape shape{call.written_rows(0), call.columns(1), call.rows(1)};
    if (call.reads() == 3) shape.sequence = call.positive("sequence");
    embedding(shape, call.tokens(0, shape.tokens).data(), call.read<T>(1), call.read_if_present<T>(2),
              call.write<T>(0), call.stream());
  }
};

template <class T>
struct EmbeddingBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    const EmbeddingShape shape{call.rows(1), call.columns(1), call.written_rows(0)};
    embedding_backward(shape, call.tokens(0, shape.tokens).data(), call.read<T>(1), call.write<T>(0),
                       call.stream());
  }
};

template <class T>
struct PositionBackward {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    const EmbeddingShape shape{call.rows(0), call.columns(0), 0, call.positive("sequence")};
    position_backward(shape, call.read<T>(0), call.write<T>(0), call.stream());
  }
};

template <class T>
struct LayerNorm {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 3);
    layer_norm({call.rows(0), call.columns(0)}, call.real("epsilon"), call.read<T>(0), call.read<T>(1),
               call.read<T>(2), call.write<T>(0), call.write<float>(1), call.write<float>(2), call.stream());
  }
};

template <class T>
struct LayerNormBackward {
  static void run(const KernelCall& call) {
    const bool parameters = call.writes() > 1;
    call.expect(5, 6, parameters ? 3 : 1);
    LayerNormGradient<T> of;
    of.x = call.read<T>(0);
    of.gain = call.read<T>(1);
    of.mean = call.read<float>(2);
    of.rstd = call.read<float>(3);
    of.dy = call.read<T>(4);
    of.before = call.read_if_present<T>(5);
    of.dx = call.write<T>(0);
    if (parameters) {
      of.dgain = call.write<T>(1);
      of.dbias = call.write<T>(2);
    }
    layer_norm_backward({call.rows(0), call.columns(0)}, of, call.stream());
  }
};

template <class T>
struct LayerNormBackwardParameters {
  static void run(const KernelCall& call) {
    call.expect(4, 4, 2);
    layer_norm_backward_parameters({call.rows(0), call.columns(0)}, call.read<T>(0), call.read<float>(1),
                                   call.read<float>(2), call.read<T>(3), call.write<T>(0), call.write<T>(1),
                                   call.stream());
  }
};

// With the weight as operand 1: [inputs, outputs], or the other way round.
LinearShape shape_by_weight(const KernelCall& call) {
  const bool transposed = call.integer("transposed") != 0;
  const std::int64_t first = call.rows(1);
  const std::int64_t second = call.columns(1);
  return {call.rows(0), transposed ? second : first, transposed ? first : second, transposed};
}

template <class T>
struct Linear {
  static void run(const KernelCall& call) {
    call.expect(2, 3, 1);
    linear(shape_by_weight(call), call.read<T>(0), call.read<T>(1), call.read_if_present<T>(2),
           call.write<T>(0), call.stream());
  }
};

template <class T>
struct LinearBackwardInput {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    linear_backward_input(shape_by_weight(call), call.read<T>(0), call.read<T>(1), call.write<T>(0),
                          call.stream());
  }
};

template <class T>
struct LinearBackwardWeight {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    const LinearShape shape{call.rows(0), call.columns(0), call.columns(1), call.integer("transposed") != 0};
    linear_backward_weight(shape, call.read<T>(0), call.read<T>(1), call.write<T>(0), call.stream());
  }
};

template <class T>
struct LinearBackwardBias {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    column_sum({call.rows(0), call.columns(0)}, call.read<T>(0), call.write<T>(0), call.stream());
  }
};

GeluForm gelu_form(const KernelCall& call) {
  const std::string& form = call.text("form");
  if (form == "tanh") return GeluForm::tanh;
  if (form == "erf") return GeluForm::erf;
  call.fail("has the form '" + form + "', which is neither 'tanh' nor 'erf'");
}

template <class T>
struct LinearGelu {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 2);
    linear_gelu(shape_by_weight(call), gelu_form(call), call.read<T>(0), call.read<T>(1), call.read<T>(2),
                call.write<T>(0), call.write<T>(1), call.stream());
  }
};

template <class T>
struct Gelu {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    gelu(gelu_form(call), call.elements(0), call.read<T>(0), call.write<T>(0), call.stream());
  }
};

template <class T>
struct GeluBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1, 2);
    if (call.writes() == 2) {
      return gelu_backward_bias(gelu_form(call), {call.rows(0), call.columns(0)}, call.read<T>(0),
                                call.read<T>(1), call.write<T>(0), call.write<T>(1), call.stream());
    }
    gelu_backward(gelu_form(call), call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0),
                  call.stream());
  }
};

template <class T>
struct Tanh {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    tanh(call.elements(0), call.read<T>(0), call.write<T>(0), call.stream());
  }
};

template <class T>
struct TanhBackward {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    tanh_backward(call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0), call.stream());
  }
};

// With `tokens` rows of all tokens and `samples` of the first ones.
FirstTokenShape first_token_shape(const KernelCall& call, std::int64_t samples, std::int64_t tokens) {
  const FirstTokenShape shape{samples, call.positive("sequence"), call.columns(0)};
  if (samples * shape.sequence != tokens) call.fail("needs whole sequences");
  return shape;
}

template <class T>
struct FirstToken {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    first_token(first_token_shape(call, call.written_rows(0), call.rows(0)), call.read<T>(0),
                call.write<T>(0), call.stream());
  }
};

template <class T>
struct FirstTokenBackward {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    first_token_backward(first_token_shape(call, call.rows(0), call.written_rows(0)), call.read<T>(0),
                         call.write<T>(0), call.stream());
  }
};

// With qkv as operand 0, and what is seen as operand `seen` if it is there.
AttentionShape attention_shape(const KernelCall& call, std::size_t seen) {
  AttentionShape shape;
  shape.heads = call.positive("heads");
  shape.sequence = call.positive("sequence");
  shape.samples = call.rows(0) / shape.sequence;
  shape.width = call.columns(0) / 3;
  shape.causal = call.integer("causal") != 0;
  shape.dropout = call.real("dropout");
  shape.random = call.random();
  if (call.columns(0) != 3 * shape.width || shape.width % shape.heads != 0) {
    call.fail("needs queries, keys and values that divide into its heads");
  }
  if (call.rows(0) % shape.sequence != 0) call.fail("needs whole sequences");
  if (seen < call.reads()) shape.seen = call.tokens(seen, call.rows(0)).data();
  shape.padded_at_end = shape.seen != nullptr && call.integer_if_present("padding_at_end") != 0;
  return shape;
}

template <class T>
struct Attention {
  static void run(const KernelCall& call) {
    call.expect(1, 2, 2);
    attention(attention_shape(call, 1), call.read<T>(0), call.write<T>(0), call.write<float>(1),
              call.stream());
  }
};

template <class T>
struct AttentionBackward {
  static void run(const KernelCall& call) {
    call.expect(4, 5, 1, 2);
    AttentionGradient<T> of{call.read<T>(0), call.read<T>(1), call.read<float>(2), call.read<T>(3),
                            call.write<T>(0)};
    if (call.writes() == 2) {
      of.workspace = call.write<std::int32_t>(1);
      of.workspace_bytes = static_cast<std::size_t>(call.written_elements(1)) * sizeof(std::int32_t);
    }
    attention_backward(attention_shape(call, 4), of, call.stream());
  }
};

template <class T>
struct Dropout {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    dropout(call.random(), call.real("probability"), call.elements(0), call.read<T>(0), call.write<T>(0),
            call.stream());
  }
};

template <class T>
struct Add {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 1);
    if (call.has("probability")) {
      return add_dropout(call.random(), call.real("probability"), call.elements(0), call.read<T>(0),
                         call.read<T>(1), call.write<T>(0), call.stream());
    }
    add(call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0), call.stream());
  }
};

Logits logits_shape(const KernelCall& call) {
  return {call.rows(0), call.vocabulary(call.columns(0)), call.columns(0)};
}

template <class T>
struct CrossEntropy {
  static void run(const KernelCall& call) {
    call.expect(2, 2, 2);
    const KernelCall::TokenSlice targets = call.tokens(1, call.rows(0));
    cross_entropy(logits_shape(call), call.read<T>(0), targets.data(), call.write<double>(0),
                  call.write<float>(1), call.stream(), {targets.batch, targets.all});
  }
};

template <class T>
struct CrossEntropyBackward {
  static void run(const KernelCall& call) {
    call.expect(3, 3, 1);
    const KernelCall::TokenSlice targets = call.tokens(1, call.rows(0));
    cross_entropy_backward(logits_shape(call), call.read<T>(0), targets.data(), call.read<float>(2),
                           call.write<T>(0), call.stream(), {targets.batch, targets.all});
  }
};

template <class T>
struct HeadAndLoss {
  static void run(const KernelCall& call) {
    const bool has_bias = call.reads() == 4;
    call.expect(3, 4, has_bias ? 5 : 4);
    LinearCrossEntropy<T> of;
    of.shape = shape_by_weight(call);
    of.vocabulary = call.vocabulary(of.shape.outputs);
    of.bias = call.read_if_present<T>(3);
    if (has_bias) of.dbias = call.write<T>(4);
    of.chunk = std::min(call.positive("chunk"), of.shape.tokens);
    of.x = call.read<T>(0);
    of.weight = call.read<T>(1);
    const KernelCall::TokenSlice targets = call.tokens(2, of.shape.tokens);
    of.targets = targets.data();
    of.batch_targets = targets.all;
    of.batch = targets.batch;
    of.loss = call.write<double>(0);
    of.dx = call.write<T>(1);
    of.dweight = call.write<T>(2);
    of.workspace = call.workspace<void>(3, workspace_bytes(of));
    linear_cross_entropy(of, call.stream());
  }
};

void launch_add_loss(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(2, 2, 1);
  add_loss(call.read<double>(0), call.read<double>(1), call.write<double>(0), call.stream());
}

}  // namespace

void add_transformer_kernels(LaunchTable& table) {
  table.add("embedding", launch_adapter<Embedding>);
  table.add("embedding_backward", launch_adapter<EmbeddingBackward>);
  table.add("position_backward", launch_adapter<PositionBackward>);
  table.add("layer_norm", launch_adapter<LayerNorm>);
  table.add("layer_norm_backward", launch_adapter<LayerNormBackward>);
  table.add("layer_norm_backward_parameters", launch_adapter<LayerNormBackwardParameters>);
  table.add("linear", launch_adapter<Linear>);
  table.add("linear_backward_input", launch_adapter<LinearBackwardInput>);
  table.add("linear_backward_weight", launch_adapter<LinearBackwardWeight>);
  table.add("linear_backward_bias", launch_adapter<LinearBackwardBias>);
  table.add("linear_gelu", launch_adapter<LinearGelu>);
  table.add("gelu", launch_adapter<Gelu>);
  table.add("gelu_backward", launch_adapter<GeluBackward>);
  table.add("tanh", launch_adapter<Tanh>);
  table.add("tanh_backward", launch_adapter<TanhBackward>);
  table.add("first_token", launch_adapter<FirstToken>);
  table.add("first_token_backward", launch_adapter<FirstTokenBackward>);
  table.add("attention", launch_adapter<Attention>);
  table.add("attention_backward", launch_adapter<AttentionBackward>);
  table.add("dropout", launch_adapter<Dropout>);
  table.add("add", launch_adapter<Add>);
  table.add("accumulate", launch_adapter<Add>);
  table.add("cross_entropy", launch_adapter<CrossEntropy>);
  table.add("cross_entropy_backward", launch_adapter<CrossEntropyBackward>);
  table.add("add_loss", launch_add_loss);
  table.add("linear_cross_entropy", launch_adapter<HeadAndLoss>);
}

}  // namespace stowage::cuda
