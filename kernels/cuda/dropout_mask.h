// Dropout's mask: keeps the same elements as the CPU's (kernels/cpu/dropout_mask.h).
#pragma once

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/math/philox.h"

namespace stowage::cuda {

// Kernels take a mask by value.
class DropoutMask {
 public:
  // `probability` of an element to be dropped, in [0, 1].
  DropoutMask(const RandomStream& stream, double probability)
      : stream_(stream),
        threshold_(dropout_threshold(probability)),
        scale_(static_cast<float>(1 / (1 - probability))) {}

  // Returns the factor of element `element`.
  STOWAGE_HOST_DEVICE float factor(std::uint64_t element) const {
    element += stream_.first;
    const auto words = random_words(stream_, element / 4);
    // Selects without an index: an array that is indexed at run time lies in local memory.
    const std::uint32_t left = element % 2 == 0 ? words.v[0] : words.v[1];
    const std::uint32_t right = element % 2 == 0 ? words.v[2] : words.v[3];
    return (element % 4 < 2 ? left : right) >= threshold_ ? scale_ : 0.0F;
  }

  // Bit i: whether element first + i is kept, i < 4. Takes one draw if the first element's number in the
  // batch is a multiple of 4, else two.
  STOWAGE_HOST_DEVICE unsigned kept_of_four(std::uint64_t first) const {
    first += stream_.first;
    unsigned bits = kept_of_group(first / 4);
    if (first % 4 != 0) bits = (bits | kept_of_group(first / 4 + 1) << 4U) >> first % 4;
    return bits & 0xfU;
  }
  // The factor of a kept element.
  STOWAGE_HOST_DEVICE float scale() const { return scale_; }

 private:
  STOWAGE_HOST_DEVICE unsigned kept_of_group(std::uint64_t index) const {
    const auto words = random_words(stream_, index);
    unsigned bits = 0;
    for (unsigned i = 0; i < 4; ++i) {
      if (words.v[i] >= threshold_) bits |= 1U << i;
    }
    return bits;
  }

  RandomStream stream_;
  std::uint64_t threshold_;
  float scale_;
};

}  // namespace stowage::cuda
