// The gradient norm and the optimizer.
#include <vector>

#include "kernels/cuda/optimizer.h"
#include "src/nn/cuda/adapter.h"
#include "src/nn/optimizer_settings.h"

namespace stowage::cuda {
namespace {

template <class T>
struct SquareSum {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    square_sum(call.elements(0), call.read<T>(0), call.write<double>(0), call.stream());
  }
};

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  // Kept by the thread: a step allocates nothing.
  thread_local std::vector<const double*> sums;
  sums.clear();
  for (std::size_t i = 0; i < call.reads(); ++i) sums.push_back(call.read<double>(i));
  clip(sums, call.real("clip"), call.write<double>(0), call.stream(), call.step().loss_scale);
}

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    constexpr bool has_low = sizeof(T) == 2;
    call.expect(has_low ? 6 : 5, has_low ? 6 : 5, has_low ? 4 : 3);
    AdamWOperands<T> of;
    of.count = call.elements(0);
    of.parameter = call.read<T>(0);
    of.gradient = call.read<T>(1);
    of.first_moment = call.read<float>(2);
    of.second_moment = call.read<float>(3);
    of.clip = call.read<double>(4);
    of.new_parameter = call.write<T>(0);
    of.new_first_moment = call.write<float>(1);
    of.new_second_moment = call.write<float>(2);
    if (has_low) {
      of.low = call.read<MasterLow<T>>(5);
      of.new_low = call.write<MasterLow<T>>(3);
    }
    of.loss_scale = call.step().loss_scale;
    adamw(adamw_settings(call), of, call.stream());
  }
};

}  // namespace

void add_update_kernels(LaunchTable& table) {
  table.add("square_sum", launch_adapter<SquareSum>);
  table.add("clip", launch_clip);
  table.add("adamw", launch_adapter<AdamWUpdate>);
}

}  // namespace stowage::cuda
