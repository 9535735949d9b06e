// This file is compiled with contraction off: the device's AdamW must give the same bits.
#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/optimizer.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t chunk = 16384;

void update(const AdamWConstants<float>& constants, std::int64_t begin, std::int64_t end,
            const AdamWOperands<float>& of) {
  update_elements(constants, end - begin, from_element(begin, of));
}

template <class T>
void update(const AdamWConstants<float>& constants, std::int64_t begin, std::int64_t end,
            const SplitOperands<T>& of) {
  update_elements(constants, end - begin, from_element(begin, of));
}

void update(const AdamWConstants<double>& constants, std::int64_t begin, std::int64_t end,
            const AdamWOperands<double>& of) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const AdamWElement<double> next =
        adamw_update(constants, {of.parameter[i], of.first_moment[i], of.second_moment[i]}, of.gradient[i]);
    of.new_parameter[i] = next.parameter;
    of.new_first_moment[i] = next.first_moment;
    of.new_second_moment[i] = next.second_moment;
  }
}

template <class T, class Operands>
void update_all(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
                const Operands& operands) {
  const AdamWConstants<T> constants(settings, gradient_scale);
  parallel_for(count, chunk,
               [&](std::int64_t begin, std::int64_t end) { update(constants, begin, end, operands); });
}

}  // namespace

template <class T>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const AdamWOperands<T>& operands) {
  update_all<T>(settings, gradient_scale, count, operands);
}

template <class T>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const SplitOperands<T>& operands) {
  update_all<float>(settings, gradient_scale, count, operands);
}

template void adamw(const AdamWSettings&, double, std::int64_t, const AdamWOperands<float>&);
template void adamw(const AdamWSettings&, double, std::int64_t, const AdamWOperands<double>&);
template void adamw(const AdamWSettings&, double, std::int64_t, const SplitAdamWOperands&);
template void adamw(const AdamWSettings&, double, std::int64_t, const HalfAdamWOperands&);

}  // namespace stowage::cpu
