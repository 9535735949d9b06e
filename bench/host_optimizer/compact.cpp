#include <memory>
#include <random>

#include "bench/host_optimizer/arrays.h"
#include "bench/host_optimizer/measurement.h"
#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/compact_adamw.h"

namespace stowage::bench {
namespace {

using namespace stowage::cpu;

constexpr AdamWSettings compact_settings{0.9, 0.95, 1e-8, 0.1, 1e-4, 20};

// bf16 weights with split masters, and moments after one step.
struct CompactMemory {
  explicit CompactMemory(std::int64_t elements)
      : count(elements),
        upper(count),
        gradient(count),
        low(count),
        first(count),
        second(count),
        first_codes(count),
        second_codes(count),
        first_scales(moment_blocks(count)),
        second_scales(moment_blocks(count)),
        record(static_cast<std::int64_t>(value_record_bytes(count, 2))) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<Bfloat16> weights, gradients;
    for (int i = 0; i < 1 << 20; ++i) {
      weights.emplace_back(0.02F * normal(generator));
      gradients.emplace_back(1e-4F * normal(generator));
    }
    fill(count, weights, upper.data());
    fill(count, gradients, gradient.data());
  }
  SplitAdamWOperands weights() const {
    Bfloat16* const p = upper.data();
    return {p, gradient.data(), low.data(), nullptr, nullptr, p, low.data(), nullptr, nullptr};
  }
  CompactAdamWOperands<SplitAdamWOperands, Bf16Moments> of(const Bf16Moments*) const {
    return {weights(), {first.data(), second.data(), {}}};
  }
  CompactAdamWOperands<SplitAdamWOperands, EightBitMoments> of(const EightBitMoments*) const {
    return {weights(), {first_codes.data(), second_codes.data(), first_scales.data(), second_scales.data()}};
  }

  std::int64_t count;
  Array<Bfloat16> upper, gradient;
  Array<std::int16_t> low;
  Array<Bfloat16> first, second;
  Array<std::uint8_t> first_codes, second_codes;
  Array<float> first_scales, second_scales;
  Array<std::byte> record;
};

template <class Moments>
void add_updates_of(const std::shared_ptr<CompactMemory>& memory, const char* type, double bytes,
                    double record_bytes, std::vector<Measurement>& to) {
  const Moments* const none = nullptr;
  const auto count = static_cast<double>(memory->count);
  for (const std::string& set : instruction_sets()) {
    for (const int threads : thread_counts()) {
      to.push_back({"plain", type, set, threads, bytes, count, [] {},
                    [=] { adamw(compact_settings, 1, memory->count, memory->of(none)); }});
      to.push_back({"speculated", type, set, threads, bytes + 2 * record_bytes, count, [] {},
                    [=] {
                      adamw_speculate(compact_settings, 1, memory->count, memory->of(none),
                                      memory->record.data());
                    }});
    }
  }
}

}  // namespace

void add_compact_updates(std::int64_t count, std::vector<Measurement>& to) {
  const auto memory = std::make_shared<CompactMemory>(count);
  add_updates_of<Bf16Moments>(memory, "bf16 split, bf16 moments", 18, 8, to);
  add_updates_of<EightBitMoments>(memory, "bf16 split, 8-bit moments", 14.06, 6.06, to);
}

}  // namespace stowage::bench
