// The gradient norm and the optimizer.
#include "kernels/cpu/optimizer.h"
#include "src/nn/cpu_adapter.h"
#include "src/nn/optimizer_settings.h"

namespace stowage::cpu {
namespace {

template <class T>
struct SquareSum {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    *call.write<double>(0) = square_sum(call.elements(0), call.read<T>(0));
  }
};

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    call.expect(5, 5, 3);
    const AdamWOperands<T> operands{call.read<T>(0),  call.read<T>(1),  call.read<T>(2), call.read<T>(3),
                                    call.write<T>(0), call.write<T>(1), call.write<T>(2)};
    const double scale = call.read<double>(4)[1];
    adamw(adamw_settings(call), scale, call.elements(0), operands);
  }
};

template <>
struct AdamWUpdate<Bfloat16> {
  static void run(const KernelCall& call) {
    call.expect(6, 6, 4);
    const SplitAdamWOperands operands{
        call.read<Bfloat16>(0),      call.read<Bfloat16>(1), call.read<std::int16_t>(5),
        call.read<float>(2),         call.read<float>(3),    call.write<Bfloat16>(0),
        call.write<std::int16_t>(3), call.write<float>(1),   call.write<float>(2)};
    const double scale = call.read<double>(4)[1];
    adamw(adamw_settings(call), scale, call.elements(0), operands);
  }
};

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  ClippedNorm norm;
  for (std::size_t i = 0; i < call.reads(); ++i) norm.add(*call.read<double>(i));
  double* result = call.write<double>(0);
  result[0] = norm.norm();
  result[1] = norm.scale(call.real("clip"));
}

}  // namespace

void add_update_kernels(LaunchTable& table) {
  table.add("square_sum", launch_adapter<SquareSum>);
  table.add("clip", launch_clip);
  table.add("adamw", launch_adapter<AdamWUpdate>);
}

}  // namespace stowage::cpu
