// Dropout over a run of elements: the mask is drawn anew for each use, never stored.
#pragma once

#include <cstdint>

#include "kernels/math/philox.h"

namespace stowage::cpu {

class DropoutMask {
 public:
  // `probability` of an element to be dropped, in [0, 1].
  DropoutMask(const RandomStream& stream, double probability);

  // y[i] = x[i] / (1 - probability) where element `first` + i is kept, else 0. x and y may be one.
  void apply(std::uint64_t first, std::int64_t count, const float* x, float* y) const;
  void apply(std::uint64_t first, std::int64_t count, const double* x, double* y) const;

 private:
  template <class T>
  void apply_blocks(std::uint64_t first, std::int64_t count, const T* x, T* y) const;

  RandomStream stream_;
  std::uint64_t threshold_;
  double scale_;
};

}  // namespace stowage::cpu
