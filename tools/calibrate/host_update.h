// One update in host memory by AdamW: parameter, gradient and both moments, then the clip's norm and scale.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "stowage/launch_table.h"

namespace stowage {

class HostUpdate {
 public:
  explicit HostUpdate(std::int64_t elements);

  // Of one update: reads four vectors and writes three of them again.
  double bytes() const { return 7 * static_cast<double>(vector_.bytes()); }

  // What one took, which it makes.
  double seconds();

 private:
  Kernel kernel_;
  Tensor vector_;
  Tensor clip_;
  std::array<std::unique_ptr<float[]>, 4> values_;
  std::array<double, 2> clip_values_{1, 1};
};

}  // namespace stowage
