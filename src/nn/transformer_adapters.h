// Adapters from an op's operands (include/stowage/launch_table.h) to its kernel: the part that is the same on
// every backend. The kernels' names, the order of their operands, and the requirements on their number,
// shapes and attributes are stated here once.
//
// A backend passes a stateless struct `Kernels` with the calls of its kernels. It has:
//   - the types EmbeddingShape, LinearShape, FirstTokenShape, AttentionShape, Logits, GeluForm and
//     LinearCrossEntropy<T>, with the fields that are set below;
//   - Statistic<T>: the type of the means, deviations and log-sums that are kept beside work type T;
//   - launch<Adapter>: a Kernel that runs Adapter<T>::run(call) for the op's work type T;
//   - a function for each kernel that is called below; its first argument is the lane's native stream,
//     null on the CPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/nn/attention_shape.h"
#include "src/nn/kernel_call.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class TransformerAdapters {
 public:
  static void add_to(LaunchTable& table);

 private:
  template <class T>
  using Statistic = typename Kernels::template Statistic<T>;
  using LinearShape = typename Kernels::LinearShape;

  // Parts of a call that several adapters read.

  // Requires the weight as operand 1: [inputs, outputs], or transposed.
  static LinearShape shape_by_weight(const KernelCall& call) {
    const bool transposed = call.integer("transposed") != 0;
    const std::int64_t first = call.rows(1);
    const std::int64_t second = call.columns(1);
    return {call.rows(0), transposed ? second : first, transposed ? first : second, transposed};
  }

  // Requires that the table is a block of rows.
  static void take_block(const KernelCall& call, typename Kernels::EmbeddingShape& shape) {
    shape.first_row = call.integer_if_present("first_row");
    shape.all_rows = call.positive("vocabulary");
    if (shape.first_row >= shape.all_rows) call.fail("has a block that begins behind the table");
  }

  static typename Kernels::GeluForm gelu_form(const KernelCall& call) {
    const std::string& form = call.text("form");
    if (form == "tanh") return Kernels::GeluForm::tanh;
    if (form == "erf") return Kernels::GeluForm::erf;
    call.fail("has the form '" + form + "', which is neither 'tanh' nor 'erf'");
  }

  // The shape for `tokens` rows of all tokens and `samples` rows of first tokens.
  static typename Kernels::FirstTokenShape first_token_shape(const KernelCall& call, std::int64_t samples,
                                                             std::int64_t tokens) {
    const typename Kernels::FirstTokenShape shape{samples, call.positive("sequence"), call.columns(0)};
    if (samples * shape.sequence != tokens) call.fail("needs whole sequences");
    return shape;
  }

  // Requires qkv as operand 0, and the seen positions or the documents' begins, if there are any, as operand
  // `optional`.
  static typename Kernels::AttentionShape attention_shape(const KernelCall& call, std::size_t optional) {
    return nn::attention_shape<typename Kernels::AttentionShape>(call, optional);
  }

  static typename Kernels::Logits logits_shape(const KernelCall& call) {
    return {call.rows(0), call.vocabulary(call.columns(0)), call.columns(0)};
  }

  // The adapters: one struct per kernel, for work type T.

  template <class T>
  struct Embedding {
    static void run(const KernelCall& call) {
      call.expect(2, 3, 1);
      typename Kernels::EmbeddingShape shape{call.written_rows(0), call.columns(1), call.rows(1)};
      if (call.has("first_row")) {
        take_block(call, shape);
        return Kernels::embedding_rows(call.stream(), shape, call.tokens(0, shape.tokens).data(),
                                       call.read<T>(1), call.read_if_present<T>(2), call.write<T>(0));
      }
      if (call.reads() == 3) shape.sequence = call.positive("sequence");
      Kernels::embedding(call.stream(), shape, call.tokens(0, shape.tokens).data(), call.read<T>(1),
                         call.read_if_present<T>(2), call.write<T>(0));
    }
  };

  template <class T>
  struct EmbeddingBackward {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      typename Kernels::EmbeddingShape shape{call.rows(1), call.columns(1), call.written_rows(0)};
      if (call.has("first_row")) take_block(call, shape);
      Kernels::embedding_backward(call.stream(), shape, call.tokens(0, shape.tokens).data(), call.read<T>(1),
                                  call.write<T>(0));
    }
  };

  template <class T>
  struct PositionBackward {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      const typename Kernels::EmbeddingShape shape{call.rows(0), call.columns(0), 0,
                                                   call.positive("sequence")};
      Kernels::position_backward(call.stream(), shape, call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct LayerNorm {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 3);
      Kernels::layer_norm(call.stream(), call.rows(0), call.columns(0), call.real("epsilon"), call.read<T>(0),
                          call.read<T>(1), call.read<T>(2), call.write<T>(0), call.write<Statistic<T>>(1),
                          call.write<Statistic<T>>(2));
    }
  };

  template <class T>
  struct LayerNormBackward {
    static void run(const KernelCall& call) {
      const bool parameters = call.writes() > 1;
      call.expect(5, 6, parameters ? 3 : 1);
      T* const dgain = parameters ? call.write<T>(1) : nullptr;
      T* const dbias = parameters ? call.write<T>(2) : nullptr;
      Kernels::layer_norm_backward(call.stream(), call.rows(0), call.columns(0), call.read<T>(0),
                                   call.read<T>(1), call.read<Statistic<T>>(2), call.read<Statistic<T>>(3),
                                   call.read<T>(4), call.read_if_present<T>(5), call.write<T>(0), dgain,
                                   dbias);
    }
  };

  template <class T>
  struct LayerNormBackwardParameters {
    static void run(const KernelCall& call) {
      call.expect(4, 4, 2);
      Kernels::layer_norm_backward_parameters(call.stream(), call.rows(0), call.columns(0), call.read<T>(0),
                                              call.read<Statistic<T>>(1), call.read<Statistic<T>>(2),
                                              call.read<T>(3), call.write<T>(0), call.write<T>(1));
    }
  };

  template <class T>
  struct Linear {
    static void run(const KernelCall& call) {
      call.expect(2, 3, 1);
      Kernels::linear(call.stream(), shape_by_weight(call), call.read<T>(0), call.read<T>(1),
                      call.read_if_present<T>(2), call.write<T>(0));
    }
  };

  template <class T>
  struct LinearBackwardInput {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      Kernels::linear_backward_input(call.stream(), shape_by_weight(call), call.read<T>(0), call.read<T>(1),
                                     call.write<T>(0), false);
    }
  };

  template <class T>
  struct LinearBackwardWeight {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      const LinearShape shape{call.rows(0), call.columns(0), call.columns(1),
                              call.integer("transposed") != 0};
      Kernels::linear_backward_weight(call.stream(), shape, call.read<T>(0), call.read<T>(1),
                                      call.write<T>(0));
    }
  };

  template <class T>
  struct LinearBackwardBias {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::linear_backward_bias(call.stream(), call.rows(0), call.columns(0), call.read<T>(0),
                                    call.write<T>(0));
    }
  };

  template <class T>
  struct LinearGelu {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 2);
      Kernels::linear_gelu(call.stream(), shape_by_weight(call), gelu_form(call), call.read<T>(0),
                           call.read<T>(1), call.read<T>(2), call.write<T>(0), call.write<T>(1));
    }
  };

  template <class T>
  struct Gelu {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::gelu(call.stream(), gelu_form(call), call.elements(0), call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct GeluBackward {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1, 2);
      if (call.writes() == 2) {
        return Kernels::gelu_backward_bias(call.stream(), gelu_form(call), call.rows(0), call.columns(0),
                                           call.read<T>(0), call.read<T>(1), call.write<T>(0),
                                           call.write<T>(1));
      }
      Kernels::gelu_backward(call.stream(), gelu_form(call), call.elements(0), call.read<T>(0),
                             call.read<T>(1), call.write<T>(0));
    }
  };

  template <class T>
  struct Tanh {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::tanh(call.stream(), call.elements(0), call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct TanhBackward {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      Kernels::tanh_backward(call.stream(), call.elements(0), call.read<T>(0), call.read<T>(1),
                             call.write<T>(0));
    }
  };

  template <class T>
  struct FirstToken {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::first_token(call.stream(), first_token_shape(call, call.written_rows(0), call.rows(0)),
                           call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct FirstTokenBackward {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::first_token_backward(call.stream(),
                                    first_token_shape(call, call.rows(0), call.written_rows(0)),
                                    call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct Attention {
    static void run(const KernelCall& call) {
      call.expect(1, 2, 2);
      Kernels::attention(call.stream(), attention_shape(call, 1), call.read<T>(0), call.write<T>(0),
                         call.write<Statistic<T>>(1));
    }
  };

  template <class T>
  struct AttentionBackward {
    static void run(const KernelCall& call) {
      call.expect(4, 5, 1, 2);
      std::int32_t* workspace = nullptr;
      std::size_t workspace_bytes = 0;
      if (call.writes() == 2) {
        workspace = call.write<std::int32_t>(1);
        workspace_bytes = static_cast<std::size_t>(call.written_elements(1)) * sizeof(std::int32_t);
      }
      Kernels::attention_backward(call.stream(), attention_shape(call, 4), call.read<T>(0), call.read<T>(1),
                                  call.read<Statistic<T>>(2), call.read<T>(3), call.write<T>(0), workspace,
                                  workspace_bytes);
    }
  };

  template <class T>
  struct Dropout {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      Kernels::dropout(call.stream(), call.random(), call.real("probability"), call.elements(0),
                       call.read<T>(0), call.write<T>(0));
    }
  };

  template <class T>
  struct Add {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      if (call.has("probability")) {
        return Kernels::add_dropout(call.stream(), call.random(), call.real("probability"), call.elements(0),
                                    call.read<T>(0), call.read<T>(1), call.write<T>(0));
      }
      Kernels::add(call.stream(), call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
    }
  };

  template <class T>
  struct TreeSum {
    static void run(const KernelCall& call) {
      call.expect(1, 1, 1);
      const std::int64_t rows = call.power_of_two("rows"), length = call.written_elements(0);
      if (rows > 1024) call.fail("has more than 1,024 rows");
      if (call.elements(0) % rows != 0 || call.elements(0) / rows != length)
        call.fail("needs an input of 'rows' times its output's elements");
      Kernels::tree_sum(call.stream(), rows, length, call.counted(length), call.read<T>(0), call.write<T>(0));
    }
  };

  // Losses are summed in f64 on every backend.
  static void launch_tree_sum(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(1, 1, 1);
    if (call.read_type(0) == DataType::f64) return TreeSum<double>::run(call);
    Kernels::template launch<TreeSum>(arguments);
  }

  template <class T>
  struct CrossEntropy {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 2);
      Kernels::cross_entropy(call.stream(), logits_shape(call), call.read<T>(0), call.tokens(1, call.rows(0)),
                             call.write<double>(0), call.write<Statistic<T>>(1));
    }
  };

  template <class T>
  struct CrossEntropyBackward {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 1);
      Kernels::cross_entropy_backward(call.stream(), logits_shape(call), call.read<T>(0),
                                      call.tokens(1, call.rows(0)), call.read<Statistic<T>>(2),
                                      call.write<T>(0), call.step().loss_scale);
    }
  };

  template <class T>
  struct LinearCrossEntropy {
    static void run(const KernelCall& call) {
      const bool has_bias = call.reads() == 4;
      call.expect(3, 4, has_bias ? 5 : 4);
      typename Kernels::template LinearCrossEntropy<T> of;
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
      of.loss_scale = call.step().loss_scale;
      of.loss = call.write<double>(0);
      of.dx = call.write<T>(1);
      of.dweight = call.write<T>(2);
      void* const workspace = call.workspace<void>(3, Kernels::workspace_bytes(of));
      Kernels::linear_cross_entropy(call.stream(), of, workspace);
    }
  };

  static void launch_add_loss(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(2, 2, 1);
    Kernels::add_loss(call.stream(), call.read<double>(0), call.read<double>(1), call.write<double>(0));
  }

  template <template <class> class Adapter>
  static void add(LaunchTable& table, const char* name) {
    table.add(name, Kernels::template launch<Adapter>);
  }
};

template <class Kernels>
void TransformerAdapters<Kernels>::add_to(LaunchTable& table) {
  add<Embedding>(table, "embedding");
  add<EmbeddingBackward>(table, "embedding_backward");
  add<PositionBackward>(table, "position_backward");
  add<LayerNorm>(table, "layer_norm");
  add<LayerNormBackward>(table, "layer_norm_backward");
  add<LayerNormBackwardParameters>(table, "layer_norm_backward_parameters");
  add<Linear>(table, "linear");
  add<LinearBackwardInput>(table, "linear_backward_input");
  add<LinearBackwardWeight>(table, "linear_backward_weight");
  add<LinearBackwardBias>(table, "linear_backward_bias");
  add<LinearGelu>(table, "linear_gelu");
  add<Gelu>(table, "gelu");
  add<GeluBackward>(table, "gelu_backward");
  add<Tanh>(table, "tanh");
  add<TanhBackward>(table, "tanh_backward");
  add<FirstToken>(table, "first_token");
  add<FirstTokenBackward>(table, "first_token_backward");
  add<Attention>(table, "attention");
  add<AttentionBackward>(table, "attention_backward");
  add<Dropout>(table, "dropout");
  add<Add>(table, "add");
  add<Add>(table, "accumulate");
  table.add("tree_sum", launch_tree_sum);
  add<CrossEntropy>(table, "cross_entropy");
  add<CrossEntropyBackward>(table, "cross_entropy_backward");
  add<LinearCrossEntropy>(table, "linear_cross_entropy");
  table.add("add_loss", launch_add_loss);
}

}  // namespace stowage::nn
