// Adapters of the head whose weight is in blocks of rows, in the manner of transformer_adapters.h: products
// of LinearShape, and what is done with a block's logits.
//
// `Kernels` also has LogitBlock.
#pragma once

#include "src/nn/kernel_call.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class HeadAdapters {
 public:
  static void add_to(LaunchTable& table) {
    table.add("head_statistics", Kernels::template launch<Statistics>);
    table.add("head_loss", launch_loss);
    table.add("head_loss_backward", launch_factors);
    table.add("head_backward", Kernels::template launch<Backward>);
  }

 private:
  template <class T>
  using Statistic = typename Kernels::template Statistic<T>;
  using LinearShape = typename Kernels::LinearShape;
  using LogitBlock = typename Kernels::LogitBlock;

  // Parts of a call that both ops of a block read: x, the block and the targets come first.

  static LinearShape product(const KernelCall& call) {
    if (call.columns(0) != call.columns(1)) call.fail("needs a block as wide as its input");
    return {call.rows(0), call.columns(0), call.rows(1), true};
  }

  static LogitBlock block(const KernelCall& call) {
    const LogitBlock block{call.rows(0), call.rows(1), call.integer_if_present("first_row"),
                           call.positive("vocabulary")};
    if (block.first >= block.vocabulary) call.fail("has a block that begins behind the vocabulary");
    return block;
  }

  // Returns the logits, in workspace `index`.
  template <class T>
  static T* logits(const KernelCall& call, std::size_t index) {
    const LinearShape shape = product(call);
    T* const logits = call.workspace<T>(index, static_cast<Bytes>(shape.tokens * shape.outputs) * sizeof(T));
    Kernels::linear(call.stream(), shape, call.read<T>(0), call.read<T>(1), static_cast<const T*>(nullptr),
                    logits);
    return logits;
  }

  template <class T>
  struct Statistics {
    static void run(const KernelCall& call) {
      call.expect(3, 4, 2);
      const KernelCall::TokenSlice targets = call.tokens(2, call.rows(0));
      const T* const of_block = logits<T>(call, 1);
      Kernels::fold_logits(call.stream(), block(call), of_block, targets,
                           call.read_if_present<Statistic<T>>(3), call.write<Statistic<T>>(0));
    }
  };

  template <class T>
  struct Backward {
    static void run(const KernelCall& call) {
      call.expect(4, 5, 3);
      const LinearShape shape = product(call);
      T* const of_block = logits<T>(call, 2);
      Kernels::differentiate_logits(call.stream(), block(call), call.tokens(2, shape.tokens),
                                    call.read<Statistic<T>>(3), of_block);
      Kernels::linear_backward_weight(call.stream(), shape, call.read<T>(0), of_block, call.write<T>(1));
      const bool adds = call.reads() == 5;
      const std::int64_t elements = shape.tokens * shape.inputs;
      if (adds && !call.in_place(0, 4))  // a tree of one row is a copy
        Kernels::tree_sum(call.stream(), std::int64_t{1}, elements, elements, call.read<T>(4),
                          call.write<T>(0));
      Kernels::linear_backward_input(call.stream(), shape, of_block, call.read<T>(1), call.write<T>(0), adds);
    }
  };

  // The statistics' type is also the type that the graph's work type is summed in: f32 or f64.
  template <class Run>
  static void for_statistics(const KernelCall& call, Run run) {
    if (call.columns(0) * 3 != call.elements(0)) call.fail("needs three statistics of each token");
    if (call.read_type(0) == DataType::f32) return run(call.read<float>(0), call.tokens(1, call.columns(0)));
    run(call.read<Statistic<double>>(0), call.tokens(1, call.columns(0)));
  }

  static void launch_loss(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(2, 2, 1);
    for_statistics(call, [&](const auto* statistics, const KernelCall::TokenSlice& targets) {
      Kernels::loss_of_statistics(call.stream(), call.columns(0), statistics, targets, call.write<double>(0));
    });
  }

  static void launch_factors(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(2, 2, 1);
    for_statistics(call, [&]<class S>(const S* statistics, const KernelCall::TokenSlice& targets) {
      Kernels::factors_of_statistics(call.stream(), call.columns(0), statistics, targets,
                                     call.step().loss_scale, call.write<S>(0));
    });
  }
};

}  // namespace stowage::nn
