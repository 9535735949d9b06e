// The gradient norm and the optimizer.
#include <type_traits>

#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/speculative_adamw.h"
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

// With a bf16 parameter, the other half of the master weight is state.
template <class T>
AdamWOperands<T> adamw_operands(const KernelCall& call) {
  call.expect(5, 5, 3);
  return {call.read<T>(0),  call.read<T>(1),  call.read<T>(2), call.read<T>(3),
          call.write<T>(0), call.write<T>(1), call.write<T>(2)};
}
SplitAdamWOperands split_adamw_operands(const KernelCall& call) {
  call.expect(6, 6, 4);
  return {call.read<Bfloat16>(0),      call.read<Bfloat16>(1), call.read<std::int16_t>(5),
          call.read<float>(2),         call.read<float>(3),    call.write<Bfloat16>(0),
          call.write<std::int16_t>(3), call.write<float>(1),   call.write<float>(2)};
}
template <class T>
auto operands_of(const KernelCall& call) {
  if constexpr (std::is_same_v<T, Bfloat16>)
    return split_adamw_operands(call);
  else
    return adamw_operands<T>(call);
}
double clip_scale(const KernelCall& call) { return call.read<double>(4)[1]; }

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    adamw(adamw_settings(call), clip_scale(call), call.elements(0), operands);
  }
};

// What a speculated update takes the clip scale for.
constexpr double unclipped = 1;

template <class T>
struct AdamWSpeculation {
  static void run(const KernelCall& call) {
    if (!call.step().speculate) return;
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    adamw_speculate(adamw_settings(call), unclipped, count, operands, call.undo_record(count));
  }
};

template <class T>
struct AdamWFinish {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    std::byte* const record = call.undo_record(count);
    adamw_finish(adamw_settings(call), unclipped, clip_scale(call), count, operands, record);
    adamw_not_speculated(count, record);
  }
};

template <class T>
struct AdamWUndo {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    std::byte* const record = call.undo_record(count);
    adamw_undo(adamw_settings(call), unclipped, count, operands, record);
    adamw_not_speculated(count, record);
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
  table.add("adamw.speculate", launch_adapter<AdamWSpeculation>);
  table.add("adamw.finish", launch_adapter<AdamWFinish>);
  table.add("adamw.undo", launch_adapter<AdamWUndo>);
}

}  // namespace stowage::cpu
