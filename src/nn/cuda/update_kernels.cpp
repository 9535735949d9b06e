// The gradient norm and the optimizer.
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
    square_sums(of.count, call.read<T>(0), of.pieces, of.piece, call.write<double>(0), call.stream());
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

template <class T>
struct AdamWUpdate {
  static constexpr std::size_t halves = sizeof(T) == 2 ? 1 : 0;

  static void run(const KernelCall& call) {
    const DataType moments = call.reads() < 5 ? DataType::f32 : call.read_type(2);
    const std::size_t more = halves + (moments == DataType::u8 ? 2 : 0);
    call.expect(5 + more, 5 + more, 3 + more);
    AdamWOperands<T> of = weights_of(call);
    if (moments == DataType::bf16 || moments == DataType::u8) {
      const bool scales_in_place = moments == DataType::bf16 || (call.in_place(3 + halves, 5 + halves) &&
                                                                 call.in_place(4 + halves, 6 + halves));
      if (!call.in_place(1, 2) || !call.in_place(2, 3) || !scales_in_place)
        call.fail("must update its moments in place");
      if (moments == DataType::bf16)
        return adamw(adamw_settings(call), of, bf16_moments(call), call.stream());
      return adamw(adamw_settings(call), of, eight_bit_moments(call), call.stream());
    }
    of.first_moment = call.read<float>(2);
    of.second_moment = call.read<float>(3);
    of.new_first_moment = call.write<float>(1);
    of.new_second_moment = call.write<float>(2);
    adamw(adamw_settings(call), of, call.stream());
  }

 private:
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
  static Bf16Moments bf16_moments(const KernelCall& call) {
    return {call.write<Bfloat16>(1), call.write<Bfloat16>(2), call.random()};
  }
  static EightBitMoments eight_bit_moments(const KernelCall& call) {
    return {call.write<std::uint8_t>(1), call.write<std::uint8_t>(2), call.write<float>(3 + halves),
            call.write<float>(4 + halves)};
  }
};

}  // namespace

void add_update_kernels(LaunchTable& table) {
  table.add("square_sum", launch_adapter<SquareSum>);
  table.add("clip", launch_clip);
  table.add("norm_part", launch_norm_part);
  table.add("adamw", launch_adapter<AdamWUpdate>);
}

void add_kernels(LaunchTable& table) {
  add_transformer_kernels(table);
  add_update_kernels(table);
}

}  // namespace stowage::cuda
