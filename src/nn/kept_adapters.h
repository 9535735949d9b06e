// Adapters of the kernels by which a part of the tokens is kept: scores, the choice, and the kept rows.
// transformer_adapters.h says what an adapter is, and what `Kernels` has; here it also has the types
// TopTokensShape and KeptRows.
#pragma once

#include <cstdint>

#include "src/nn/attention_shape.h"
#include "src/nn/kernel_call.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class KeptAdapters {
 public:
  static void add_to(LaunchTable& table) {
    table.add("attention_scores", Kernels::template launch<AttentionScores>);
    table.add("top_tokens", Kernels::template launch<TopTokens>);
    table.add("take_rows", Kernels::template launch<TakeRows>);
    table.add("take_rows_backward", Kernels::template launch<TakeRowsBackward>);
    table.add("add_rows", Kernels::template launch<AddRows>);
  }

 private:
  template <class T>
  using Statistic = typename Kernels::template Statistic<T>;
  using KeptRows = typename Kernels::KeptRows;

  template <class T>
  struct AttentionScores {
    static void run(const KernelCall& call) {
      call.expect(2, 3, 2);
      const auto shape = attention_shape<typename Kernels::AttentionShape>(call, 2);
      if (shape.window > 0 || shape.begins != nullptr) call.fail("takes neither a window nor documents");
      const std::int64_t sums = shape.samples * shape.heads * shape.sequence;
      if (call.elements(1) != sums || call.written_elements(0) != call.rows(0))
        call.fail("needs a log_sum_exp of each head's queries, and a score of each token");
      auto* const by_head = call.workspace<Statistic<T>>(1, static_cast<Bytes>(sums) * sizeof(Statistic<T>));
      Kernels::attention_scores(call.stream(), shape, call.read<T>(0), call.read<Statistic<T>>(1),
                                call.write<Statistic<T>>(0), by_head);
    }
  };

  template <class T>
  struct TopTokens {
    static void run(const KernelCall& call) {
      call.expect(1, 2, 1);
      typename Kernels::TopTokensShape shape;
      shape.sequence = call.positive("sequence");
      shape.keep = call.positive("keep");
      shape.samples = call.elements(0) / shape.sequence;
      if (shape.keep > shape.sequence || call.elements(0) % shape.sequence != 0 ||
          call.written_elements(0) != shape.samples * shape.keep)
        call.fail("needs whole sequences, and a row for each token that it keeps");
      if (call.reads() > 1) shape.seen = call.tokens(1, call.elements(0)).data();
      Kernels::top_tokens(call.stream(), shape, call.read<Statistic<T>>(0), call.write<std::int32_t>(0));
    }
  };

  // The shape for a matrix of `tokens` rows, of which operand `rows` names the kept ones. Requires a result
  // of `written` rows as wide as operand 0.
  static KeptRows kept_rows(const KernelCall& call, std::int64_t tokens, std::size_t rows, std::int64_t kept,
                            std::int64_t written) {
    if (call.elements(rows) != kept) call.fail("needs a number for each kept row");
    if (call.written_rows(0) != written || call.written_elements(0) != written * call.columns(0))
      call.fail("needs rows of one width, and as many in its result");
    return {tokens, kept, call.columns(0)};
  }

  template <class T>
  struct TakeRows {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      Kernels::take_rows(call.stream(),
                         kept_rows(call, call.rows(0), 1, call.written_rows(0), call.written_rows(0)),
                         call.read<T>(0), call.read<std::int32_t>(1), call.write<T>(0));
    }
  };

  template <class T>
  struct TakeRowsBackward {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      Kernels::take_rows_backward(
          call.stream(), kept_rows(call, call.written_rows(0), 1, call.rows(0), call.written_rows(0)),
          call.read<T>(0), call.read<std::int32_t>(1), call.write<T>(0));
    }
  };

  template <class T>
  struct AddRows {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 1);
      if (call.columns(1) != call.columns(0)) call.fail("needs rows of one width");
      Kernels::add_rows(call.stream(), kept_rows(call, call.rows(0), 2, call.rows(1), call.rows(0)),
                        call.read<T>(0), call.read<T>(1), call.read<std::int32_t>(2), call.write<T>(0));
    }
  };
};

}  // namespace stowage::nn
