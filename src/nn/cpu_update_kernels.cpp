// The gradient norm and the optimizer.
#include <cmath>
#include <type_traits>

#include "kernels/cpu/compact_adamw.h"
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
    const SquarePieces of = square_pieces(call);
    square_sum(of.count, call.read<T>(0), of.pieces, of.piece, call.write<double>(0));
  }
};

template <class T>
struct SquareSums {
  static void run(const KernelCall& call) {
    call.expect(1, call.reads(), call.reads());
    for (std::size_t i = 0; i < call.reads(); ++i)
      *call.write<double>(i) = square_sum(call.elements(i), call.read<T>(i));
  }
};

// Checks an update's operands, among them `halves` for a master weight's other half and `scales` of
// 8-bit moments.
void expect_operands(const KernelCall& call, std::size_t halves, std::size_t scales) {
  const std::size_t more = halves + scales;
  call.expect(5 + more, 5 + more, 3 + more);
}

// The update's parameter and gradient, and the rest of a narrow parameter's master weight; no moments.
template <class T>
auto weights_of(const KernelCall& call) {
  if constexpr (is_narrow<T>) {
    using Low = typename SplitOperands<T>::Low;
    return SplitOperands<T>{call.read<T>(0),  call.read<T>(1),    call.read<Low>(5), nullptr, nullptr,
                            call.write<T>(0), call.write<Low>(3), nullptr,           nullptr};
  } else {
    return AdamWOperands<T>{call.read<T>(0),  call.read<T>(1), nullptr, nullptr,
                            call.write<T>(0), nullptr,         nullptr};
  }
}
template <class T>
constexpr std::size_t halves_of = is_narrow<T> ? 1 : 0;

// The factor of the gradients without clipping.
double unclipped(const KernelCall& call) { return 1 / call.step().loss_scale; }
double clip_scale(const KernelCall& call) { return call.read<double>(4)[1] * unclipped(call); }
// Whether the gradients overflowed; then the update is skipped.
bool is_overflow(const KernelCall& call) { return !std::isfinite(call.read<double>(4)[0]); }

// Updates: made at once, or begun before the gate and then ended or undone.

// Moments in the type of the arithmetic.
template <class T>
struct WideUpdate {
  const KernelCall& call;
  std::int64_t count = call.elements(0);
  decltype(weights_of<T>(call)) operands = weights_of<T>(call);

  explicit WideUpdate(const KernelCall& from) : call(from) {
    using Moment = std::conditional_t<std::is_same_v<T, double>, double, float>;
    expect_operands(call, halves_of<T>, 0);
    operands.first_moment = call.read<Moment>(2);
    operands.second_moment = call.read<Moment>(3);
    operands.new_first_moment = call.write<Moment>(1);
    operands.new_second_moment = call.write<Moment>(2);
  }
  std::byte* record() const { return call.undo_record(undo_record_bytes(count)); }

  void make(double scale) const { adamw(adamw_settings(call), scale, count, operands); }
  void begin() const { adamw_speculate(adamw_settings(call), unclipped(call), count, operands, record()); }
  void end() const {
    adamw_finish(adamw_settings(call), unclipped(call), clip_scale(call), count, operands, record());
    adamw_not_speculated(count, record());
  }
  void undo() const {
    adamw_undo(adamw_settings(call), unclipped(call), count, operands, record());
    adamw_not_speculated(count, record());
  }
};

template <class Moments>
Moments moments_of(const KernelCall& call, std::size_t halves) {
  if constexpr (std::is_same_v<Moments, Bf16Moments>) {
    expect_operands(call, halves, 0);
    return {call.write<Bfloat16>(1), call.write<Bfloat16>(2), call.random()};
  } else {
    expect_operands(call, halves, 2);
    return {call.write<std::uint8_t>(1), call.write<std::uint8_t>(2), call.write<float>(3 + halves),
            call.write<float>(4 + halves)};
  }
}

// Moments in a narrower type.
template <class T, class Moments>
struct CompactUpdate {
  const KernelCall& call;
  std::int64_t count = call.elements(0);
  CompactAdamWOperands<decltype(weights_of<T>(call)), Moments> operands;

  explicit CompactUpdate(const KernelCall& from)
      : call(from), operands{weights_of<T>(call), moments_of<Moments>(call, halves_of<T>)} {
    constexpr std::size_t h = halves_of<T>;
    const bool scales_in_place =
        std::is_same_v<Moments, Bf16Moments> || (call.in_place(3 + h, 5 + h) && call.in_place(4 + h, 6 + h));
    if (!call.in_place(1, 2) || !call.in_place(2, 3) || !scales_in_place)
      call.fail("must update its moments in place");
  }
  std::byte* record() const {
    return call.undo_record(
        value_record_bytes(count, std::is_same_v<Moments, Bf16Moments> ? 2 : 1, saved_weight_bytes<T>));
  }

  void make(double scale) const { adamw(adamw_settings(call), scale, count, operands); }
  void begin() const { adamw_speculate(adamw_settings(call), unclipped(call), count, operands, record()); }
  void end() const {
    adamw_finish(adamw_settings(call), unclipped(call), clip_scale(call), count, operands, record());
    not_speculated(count, operands, record());
  }
  void undo() const {
    adamw_undo(count, operands, record());
    not_speculated(count, operands, record());
  }
};

// Calls use(update) with the update for the call's types.
template <class T, class Use>
void with_update(const KernelCall& call, const Use& use) {
  call.expect(5, 8, 3, 6);
  if constexpr (!std::is_same_v<T, double>) {
    if (call.read_type(2) == DataType::bf16) return use(CompactUpdate<T, Bf16Moments>(call));
    if (call.read_type(2) == DataType::u8) return use(CompactUpdate<T, EightBitMoments>(call));
  }
  use(WideUpdate<T>(call));
}

template <class T>
struct AdamWUpdate {
  static void run(const KernelCall& call) {
    with_update<T>(call, [&](const auto& update) {
      if (!is_overflow(call)) update.make(clip_scale(call));
    });
  }
};

template <class T>
struct AdamWUnclipped {
  static void run(const KernelCall& call) {
    with_update<T>(call, [&](const auto& update) { update.make(unclipped(call)); });
  }
};

template <class T>
struct AdamWSpeculation {
  static void run(const KernelCall& call) {
    if (call.step().speculate) with_update<T>(call, [](const auto& update) { update.begin(); });
  }
};

template <class T>
struct AdamWFinish {
  static void run(const KernelCall& call) {
    with_update<T>(call, [&](const auto& update) { is_overflow(call) ? update.undo() : update.end(); });
  }
};

template <class T>
struct AdamWUndo {
  static void run(const KernelCall& call) {
    with_update<T>(call, [](const auto& update) { update.undo(); });
  }
};

void launch_clip(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(0, call.reads(), 1);
  const std::int64_t pieces = call.has("pieces") ? call.power_of_two("pieces") : 1;
  ClippedNorm norm(call.step().loss_scale);
  norm.add(norm_part(norm_sums(call, pieces), pieces));
  double* result = call.write<double>(0);
  result[0] = norm.norm();
  result[1] = norm.scale(call.real("clip"));
}

void launch_norm_part(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  call.expect(1, call.reads(), 1);
  const std::int64_t pieces = call.power_of_two("pieces");
  if (call.written_elements(0) == pieces)
    add_pieces(norm_sums(call, pieces), pieces, call.write<double>(0));
  else
    *call.write<double>(0) = norm_part(norm_sums(call, pieces), pieces);
}

}  // namespace

void add_update_kernels(LaunchTable& table) {
  table.add("square_sum", launch_adapter<SquareSum>);
  table.add("square_sums", launch_adapter<SquareSums>);
  table.add("clip", launch_clip);
  table.add("norm_part", launch_norm_part);
  table.add("adamw", launch_adapter<AdamWUpdate>);
  table.add("adamw.unclipped", launch_adapter<AdamWUnclipped>);
  table.add("adamw.speculate", launch_adapter<AdamWSpeculation>);
  table.add("adamw.finish", launch_adapter<AdamWFinish>);
  table.add("adamw.undo", launch_adapter<AdamWUndo>);
}

}  // namespace stowage::cpu
