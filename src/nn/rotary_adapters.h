// Adapters of the rotary position embedding, in the manner of transformer_adapters.h.
//
// `Kernels` has Statistic<T>, launch<Adapter>, and the functions that are called below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/math/rotary.h"
#include "src/nn/kernel_call.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class RotaryAdapters {
 public:
  static void add_to(LaunchTable& table) {
    table.add("rotary", Kernels::template launch<Rotary>);
    table.add("rotary_backward", Kernels::template launch<RotaryBackward>);
  }

 private:
  template <class T>
  using Statistic = typename Kernels::template Statistic<T>;

  static RotaryBase base_of(const KernelCall& call) {
    RotaryBase base{.theta = call.real("theta"), .scaled = call.has("factor")};
    if (base.scaled) {
      base.factor = call.real("factor");
      base.low_frequency_factor = call.real("low_frequency_factor");
      base.high_frequency_factor = call.real("high_frequency_factor");
      base.original_positions = call.integer("original_positions");
    }
    if (!base.valid()) call.fail("has a theta, or factors of its scaling, that give no angles");
    return base;
  }

  // Requires rows of heads as operand 0, and the documents' beginnings, if they are given, as operand
  // `begins`.
  static RotaryShape shape_of(const KernelCall& call, std::size_t begins) {
    RotaryShape shape;
    shape.tokens = call.rows(0);
    shape.sequence = call.positive("sequence");
    shape.heads = call.positive("heads");
    shape.key_heads = call.positive("key_heads");
    const std::int64_t columns = call.columns(0);
    if (shape.heads > columns || shape.key_heads > columns || columns % (2 * shape.all_heads()) != 0)
      call.fail("needs rows that divide into heads of an even width");
    shape.width = columns / shape.all_heads();
    if (shape.width > most_rotary_width)
      call.fail("has heads of more than " + std::to_string(most_rotary_width) + " elements");
    if (shape.tokens % shape.sequence != 0) call.fail("needs whole sequences");
    if (begins < call.reads()) shape.begins = call.tokens(begins, shape.tokens).data();
    shape.frequencies = rotary_frequencies(shape.width, base_of(call));
    return shape;
  }

  static void require_elements(const KernelCall& call, std::int64_t found, std::int64_t right,
                               const char* of) {
    if (found != right) call.fail(std::string("needs ") + of + " of another size");
  }

  // Requires the gains as operands 1 and 2.
  static void require_gains(const KernelCall& call, const RotaryShape& shape) {
    require_elements(call, call.elements(1), shape.width, "a gain of queries");
    require_elements(call, call.elements(2), shape.width, "a gain of keys");
  }

  template <class T>
  struct Rotary {
    static void run(const KernelCall& call) {
      const bool normed = call.reads() >= 3;
      call.expect(1, 4, normed ? 2 : 1);
      const RotaryShape shape = shape_of(call, normed ? 3 : 1);
      require_elements(call, call.written_elements(0), call.elements(0), "an output");
      if (!normed) return Kernels::rotary(call.stream(), shape, call.read<T>(0), call.write<T>(0));
      require_gains(call, shape);
      require_elements(call, call.written_elements(1), shape.tokens * shape.turned_heads(), "an rstd");
      Kernels::normed_rotary(call.stream(), shape, call.real("epsilon"), call.read<T>(0), call.read<T>(1),
                             call.read<T>(2), call.write<T>(0), call.write<Statistic<T>>(1));
    }
  };

  template <class T>
  struct RotaryBackward {
    static void run(const KernelCall& call) {
      const bool normed = call.reads() >= 3;
      const bool with_gains = normed && call.writes() > 1;
      call.expect(normed ? 5 : 1, normed ? 6 : 2, with_gains ? 3 : 1);
      const RotaryShape shape = shape_of(call, normed ? 5 : 1);
      require_elements(call, call.written_elements(0), call.elements(0), "an output");
      if (!normed) return Kernels::rotary_backward(call.stream(), shape, call.read<T>(0), call.write<T>(0));
      require_gains(call, shape);
      require_elements(call, call.elements(3), shape.tokens * shape.turned_heads(), "an rstd");
      require_elements(call, call.elements(4), call.elements(0), "a gradient");
      for (std::size_t gain = 1; gain < call.writes(); ++gain)
        require_elements(call, call.written_elements(gain), shape.width, "a gain's gradient");
      T* const dquery_gain = with_gains ? call.write<T>(1) : nullptr;
      T* const dkey_gain = with_gains ? call.write<T>(2) : nullptr;
      Kernels::normed_rotary_backward(call.stream(), shape, call.read<T>(0), call.read<T>(1), call.read<T>(2),
                                      call.read<Statistic<T>>(3), call.read<T>(4), call.write<T>(0),
                                      dquery_gain, dkey_gain);
    }
  };
};

}  // namespace stowage::nn
