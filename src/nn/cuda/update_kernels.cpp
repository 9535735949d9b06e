// The gradient norm and the optimizer.
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/optimizer.h"
#include "src/nn/cuda/adapter.h"
#include "src/nn/cuda/launch_table.h"
#include "src/nn/optimizer_settings.h"

namespace stowage::cuda {
namespace {

template <class T>
struct SquareSum {
  static void run(const KernelCall& call) {
    call.expect(1, 1, 1);
    const SquarePieces of = square_pieces(call);
    square_sum(of.count, call.read<T>(0), of.pieces, of.piece, call.write<double>(0), call.stream());
  }
};

template <class T>
struct SquareSums {
  static void run(const KernelCall& call) {
    call.expect(1, call.reads(), call.reads());
    thread_local std::vector<SummedArray<T>> arrays;  // so that a step allocates nothing
    arrays.clear();
    for (std::size_t i = 0; i < call.reads(); ++i)
      arrays.push_back({call.read<T>(i), call.elements(i), call.write<double>(i)});
    square_sums<T>(arrays, call.stream());
  }
};

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  const std::int64_t pieces = call.has("pieces") ? call.power_of_two("pieces") : 1;
  clip(norm_sums(call, pieces), pieces, call.real("clip"), call.write<double>(0), call.stream(),
       call.step().loss_scale);
}

void launch_norm_part(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  const std::int64_t pieces = call.power_of_two("pieces");
  if (call.written_elements(0) == pieces)
    add_pieces(norm_sums(call, pieces), pieces, call.write<double>(0), call.stream());
  else
    norm_part(norm_sums(call, pieces), pieces, call.write<double>(0), call.stream());
}

// Updates whose operands have the same types.
template <class T>
struct AdamWUpdates {
  using Calls = std::span<const KernelCall>;
  static constexpr std::size_t halves = sizeof(T) == 2 ? 1 : 0;

  static void run(Calls calls) {
    const KernelCall& first = calls.front();
    const DataType moments = first.reads() < 5 ? DataType::f32 : first.read_type(2);
    if (moments == DataType::bf16) return launch<CompactUpdate<T, Bf16Moments>>(calls, compact<Bf16Moments>);
    if (moments == DataType::u8)
      return launch<CompactUpdate<T, EightBitMoments>>(calls, compact<EightBitMoments>);
    launch<WideUpdate<T>>(calls, wide);
  }

 private:
  template <class Update>
  static void launch(Calls calls, Update (*update)(const KernelCall&)) {
    thread_local std::vector<Update> updates;  // so that a step allocates nothing
    updates.clear();
    for (const KernelCall& call : calls) updates.push_back(update(call));
    adamw(std::span<const Update>(updates), calls.front().stream());
  }

  static WideUpdate<T> wide(const KernelCall& call) {
    call.expect(5 + halves, 5 + halves, 3 + halves);
    WideUpdate<T> update{adamw_settings(call), weights_of(call)};
    update.operands.first_moment = call.read<float>(2);
    update.operands.second_moment = call.read<float>(3);
    update.operands.new_first_moment = call.write<float>(1);
    update.operands.new_second_moment = call.write<float>(2);
    return update;
  }
  template <class Moments>
  static CompactUpdate<T, Moments> compact(const KernelCall& call) {
    constexpr bool has_scales = std::is_same_v<Moments, EightBitMoments>;
    constexpr std::size_t more = halves + (has_scales ? 2 : 0);
    call.expect(5 + more, 5 + more, 3 + more);
    const bool scales_in_place =
        !has_scales || (call.in_place(3 + halves, 5 + halves) && call.in_place(4 + halves, 6 + halves));
    if (!call.in_place(1, 2) || !call.in_place(2, 3) || !scales_in_place)
      call.fail("must update its moments in place");
    if constexpr (has_scales)
      return {adamw_settings(call),
              weights_of(call),
              {call.write<std::uint8_t>(1), call.write<std::uint8_t>(2), call.write<float>(3 + halves),
               call.write<float>(4 + halves)}};
    else
      return {adamw_settings(call),
              weights_of(call),
              {call.write<Bfloat16>(1), call.write<Bfloat16>(2), call.random()}};
  }
  static AdamWOperands<T> weights_of(const KernelCall& call) {
    AdamWOperands<T> of;
    of.count = call.elements(0);
    of.parameter = call.read<T>(0);
    of.gradient = call.read<T>(1);
    of.clip = call.read<double>(4);
    of.new_parameter = call.write<T>(0);
    if (halves == 1) {
      of.low = call.read<MasterLow<T>>(5);
      of.new_low = call.write<MasterLow<T>>(3);
    }
    of.loss_scale = call.step().loss_scale;
    return of;
  }
};

static_assert(most_joint_updates <= most_updates);
void launch_updates(std::span<const LaunchArguments> updates) {
  thread_local std::vector<KernelCall> calls;  // so that a step allocates nothing
  calls.clear();
  for (const LaunchArguments& update : updates) calls.emplace_back(update);
  with_work_type(calls.front(), [](auto zero) { AdamWUpdates<decltype(zero)>::run(calls); });
}

void launch_update(const LaunchArguments& update) { launch_updates({&update, 1}); }

}  // namespace

void add_update_kernels(LaunchTable& table) {
  table.add("square_sum", launch_adapter<SquareSum>);
  table.add("square_sums", launch_adapter<SquareSums>);
  table.add("clip", launch_clip);
  table.add("norm_part", launch_norm_part);
  table.add("adamw", launch_update);
  table.add_joint("adamw", launch_updates);
}

void add_kernels(LaunchTable& table) {
  add_transformer_kernels(table);
  add_update_kernels(table);
}

}  // namespace stowage::cuda
