// The gradient norm and the optimizer.
#include <cmath>

#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/speculative_adamw.h"
#include "kernels/cpu/storage.h"
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
AdamWOperands<T> adamw_operands(const KernelCall& call) {
  call.expect(5, 5, 3);
  return {call.read<T>(0),  call.read<T>(1),  call.read<T>(2), call.read<T>(3),
          call.write<T>(0), call.write<T>(1), call.write<T>(2)};
}
// What makes a master weight of a narrow parameter is state.
template <class T>
SplitOperands<T> split_adamw_operands(const KernelCall& call) {
  using Low = typename SplitOperands<T>::Low;
  call.expect(6, 6, 4);
  return {call.read<T>(0),     call.read<T>(1),      call.read<Low>(5),
          call.read<float>(2), call.read<float>(3),  call.write<T>(0),
          call.write<Low>(3),  call.write<float>(1), call.write<float>(2)};
}
template <class T>
auto operands_of(const KernelCall& call) {
  if constexpr (is_narrow<T>)
    return split_adamw_operands<T>(call);
  else
    return adamw_operands<T>(call);
}
// What the gradients are multiplied by.
double unclipped(const KernelCall& call) { return 1 / call.step().loss_scale; }
double clip_scale(const KernelCall& call) { return call.read<double>(4)[1] * unclipped(call); }
// No update is made then.
bool is_overflow(const KernelCall& call) { return !std::isfinite(call.read<double>(4)[0]); }

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    if (is_overflow(call)) return;
    adamw(adamw_settings(call), clip_scale(call), call.elements(0), operands);
  }
};

template <class T>
struct AdamWSpeculation {
  static void run(const KernelCall& call) {
    if (!call.step().speculate) return;
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    adamw_speculate(adamw_settings(call), unclipped(call), count, operands, call.undo_record(count));
  }
};

template <class T>
struct AdamWFinish {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    std::byte* const record = call.undo_record(count);
    if (is_overflow(call))
      adamw_undo(adamw_settings(call), unclipped(call), count, operands, record);
    else
      adamw_finish(adamw_settings(call), unclipped(call), clip_scale(call), count, operands, record);
    adamw_not_speculated(count, record);
  }
};

template <class T>
struct AdamWUndo {
  static void run(const KernelCall& call) {
    const auto operands = operands_of<T>(call);
    const std::int64_t count = call.elements(0);
    std::byte* const record = call.undo_record(count);
    adamw_undo(adamw_settings(call), unclipped(call), count, operands, record);
    adamw_not_speculated(count, record);
  }
};

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  ClippedNorm norm(call.step().loss_scale);
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
