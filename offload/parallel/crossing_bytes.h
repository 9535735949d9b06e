// Bytes that enter and leave every stage of a model, by sums over pairs of layers.
#pragma once

#include <vector>

#include "offload/parallel/costs.h"

namespace stowage {

class CrossingBytes {
 public:
  explicit CrossingBytes(const ParallelCosts& costs);  // `costs` must outlive it

  // Returns the bytes of a micro-batch that enter layers [first, last) forward, and leave them forward.
  // `split`: the stage has a layer that may be split.
  double in(int first, int last, bool split) const;
  double out(int first, int last, bool split) const;

 private:
  const ParallelCosts& costs_;
  std::size_t width_;                               // layers + 1
  std::vector<double> bytes_, entering_, leaving_;  // sums over values with from < row and to < column

  double cut(int behind) const;
  double between(const std::vector<double>& sums, int a, int b, int c, int d) const;
};

}  // namespace stowage
