// Counts how often an update can be made ahead, in each step of a synthetic training with split weights and
// bf16 gradients: the percentage of tiles whose record has room, and of values that do not fit into 4 bits.
// Prints Markdown.
#include <fmt/core.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/speculative_adamw.h"
#include "kernels/cpu/undo_record.h"

namespace stowage::bench {
namespace {

using namespace stowage::cpu;

constexpr std::int64_t count = 1 << 21;
constexpr unsigned spike = 40;  // number of the step whose gradients are ten times as large

class Training {
 public:
  // Gradients' sizes lie between e^-range and e^range.
  explicit Training(float range) : record_(static_cast<std::size_t>(undo_record_bytes(count))) {
    std::uniform_real_distribution<float> exponent(-range, range);
    for (std::size_t i = 0; i < count; ++i) {
      const SplitWeight halves = split(0.02F * normal_(generator_));
      parameter_.push_back(halves.weight);
      low_.push_back(halves.low);
      size_.push_back(1e-4F * std::exp(exponent(generator_)));
    }
  }

  void step(const AdamWSettings& settings) {
    const float factor = settings.step == spike ? 10 : 1;
    for (std::size_t i = 0; i < count; ++i) gradient_[i] = Bfloat16(factor * size_[i] * normal_(generator_));
    const SplitAdamWOperands of{parameter_.data(),    gradient_.data(),      low_.data(),
                                first_moment_.data(), second_moment_.data(), parameter_.data(),
                                low_.data(),          first_moment_.data(),  second_moment_.data()};
    ahead_ = adamw_speculate(settings, 1, count, of, record_.data());
    count_exceptions();
    adamw_finish(settings, 1, 1, count, of, record_.data());
  }

  double ahead() const { return 100.0 * static_cast<double>(ahead_) / count; }
  // Returns the values that do not fit into 4 bits, in percent of the elements of updated tiles.
  double exceptions(Restored value) const {
    return ahead_ == 0 ? 0
                       : 100.0 * static_cast<double>(exceptions_[static_cast<int>(value)]) /
                             static_cast<double>(ahead_);
  }

 private:
  void count_exceptions() {
    for (std::int64_t& each : exceptions_) each = 0;
    TileResidues residues;
    for (std::int64_t begin = 0; begin < count; begin += undo_tile) {
      const std::byte* tile = record_.data() + begin / undo_tile * undo_tile_bytes(undo_tile);
      if (!was_updated(tile)) continue;
      read_residues(undo_tile, tile, residues);
      for (int value = 0; value < restored_values; ++value)
        exceptions_[value] += residues.exception_count[value];
    }
  }

  std::mt19937 generator_{1};
  std::normal_distribution<float> normal_;
  std::vector<Bfloat16> parameter_, gradient_ = std::vector<Bfloat16>(count);
  std::vector<std::int16_t> low_;
  std::vector<float> size_, first_moment_ = std::vector<float>(count),
                            second_moment_ = std::vector<float>(count);
  std::vector<std::byte> record_;
  std::int64_t ahead_ = 0, exceptions_[restored_values] = {};
};

void print_training(double beta2, float range) {
  Training training(range);
  for (unsigned step = 0; step < 60; ++step) {
    training.step({0.9, beta2, 1e-8, 0.1, 1e-4, step});
    if (step >= 12 && step != 20 && (step < spike - 1 || step > spike + 1) && step != 59) continue;
    fmt::print("| {} | e^±{} | {}{} | {:.1f} | {:.2f} | {:.2f} | {:.2f} |\n", beta2, range, step + 1,
               step == spike ? ", a spike" : "", training.ahead(),
               training.exceptions(Restored::first_moment), training.exceptions(Restored::second_moment),
               training.exceptions(Restored::parameter));
  }
}

}  // namespace
}  // namespace stowage::bench

int main() {
  fmt::print(
      "| beta2 | gradients' sizes | step | % made ahead | exceptions: % of m | of v | of the weight "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const double beta2 : {0.95, 0.999}) {
    for (const float range : {0.0F, 4.0F}) stowage::bench::print_training(beta2, range);
  }
}
