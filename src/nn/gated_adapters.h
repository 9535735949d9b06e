// Adapters of the kernels that Llama-like models have beside a Transformer's others: RMS norm and SwiGLU.
// transformer_adapters.h says what an adapter is, and what `Kernels` has.
#pragma once

#include "src/nn/kernel_call.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class GatedAdapters {
 public:
  static void add_to(LaunchTable& table) {
    table.add("rms_norm", Kernels::template launch<RmsNorm>);
    table.add("rms_norm_backward", Kernels::template launch<RmsNormBackward>);
    table.add("rms_norm_backward_parameters", Kernels::template launch<RmsNormBackwardParameters>);
    table.add("swiglu", Kernels::template launch<Swiglu>);
    table.add("swiglu_backward", Kernels::template launch<SwigluBackward>);
  }

 private:
  template <class T>
  using Statistic = typename Kernels::template Statistic<T>;

  template <class T>
  struct RmsNorm {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 2);
      Kernels::rms_norm(call.stream(), call.rows(0), call.columns(0), call.real("epsilon"), call.read<T>(0),
                        call.read<T>(1), call.write<T>(0), call.write<Statistic<T>>(1));
    }
  };

  template <class T>
  struct RmsNormBackward {
    static void run(const KernelCall& call) {
      call.expect(4, 5, 1, 2);
      T* const dgain = call.writes() > 1 ? call.write<T>(1) : nullptr;
      Kernels::rms_norm_backward(call.stream(), call.rows(0), call.columns(0), call.read<T>(0),
                                 call.read<T>(1), call.read<Statistic<T>>(2), call.read<T>(3),
                                 call.read_if_present<T>(4), call.write<T>(0), dgain);
    }
  };

  template <class T>
  struct RmsNormBackwardParameters {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 1);
      Kernels::rms_norm_backward_parameters(call.stream(), call.rows(0), call.columns(0), call.read<T>(0),
                                            call.read<Statistic<T>>(1), call.read<T>(2), call.write<T>(0));
    }
  };

  template <class T>
  struct Swiglu {
    static void run(const KernelCall& call) {
      call.expect(2, 2, 1);
      Kernels::swiglu(call.stream(), call.elements(0), call.read<T>(0), call.read<T>(1), call.write<T>(0));
    }
  };

  template <class T>
  struct SwigluBackward {
    static void run(const KernelCall& call) {
      call.expect(3, 3, 2);
      Kernels::swiglu_backward(call.stream(), call.elements(0), call.read<T>(0), call.read<T>(1),
                               call.read<T>(2), call.write<T>(0), call.write<T>(1));
    }
  };
};

}  // namespace stowage::nn
