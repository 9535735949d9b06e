#include "src/tokens/permutation.h"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>

namespace stowage {
namespace {

// Four rounds would do for long halves; halves of a few bits need more for uniform permutations (as in NIST
// SP 800-38G).
constexpr std::uint32_t rounds = 12;
constexpr std::uint32_t stream = 3;  // other users of Philox with the same seed have other streams

class Feistel {
 public:
  Feistel(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch)
      : half_bits_(std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2)),
        mask_(~std::uint64_t{0} >> (64 - half_bits_)),
        key_{{low(seed), high(seed)}},
        epoch_(epoch) {}

  std::uint64_t operator()(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask_;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (drawn(right, round) & mask_);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

 private:
  static std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
  static std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

  // A half has at most 32 bits.
  std::uint64_t drawn(std::uint64_t half, std::uint32_t round) const {
    const r123::Philox4x32::ctr_type counter = {{low(epoch_), high(epoch_), low(half), stream << 8 | round}};
    return r123::Philox4x32()(counter, key_)[0];
  }

  int half_bits_;
  std::uint64_t mask_;
  r123::Philox4x32::key_type key_;
  std::uint64_t epoch_;
};

}  // namespace

std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  if (count < 2) return index;
  const Feistel feistel(count, seed, epoch);
  do {
    index = feistel(index);
  } while (index >= count);
  return index;
}

}  // namespace stowage
