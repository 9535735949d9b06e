#include "offload/parallel/crossing_bytes.h"

namespace stowage {

CrossingBytes::CrossingBytes(const ParallelCosts& costs) : costs_(costs), width_(costs.layers.size() + 1) {
  if (costs.values.empty()) return;
  for (auto* sums : {&bytes_, &entering_, &leaving_}) sums->assign(width_ * width_, 0);
  for (const CrossingValue& value : costs.values) {
    const std::size_t at =
        static_cast<std::size_t>(value.from + 1) * width_ + static_cast<std::size_t>(value.to + 1);
    bytes_[at] += static_cast<double>(value.bytes);
    entering_[at] += static_cast<double>(value.entering);
    leaving_[at] += static_cast<double>(value.leaving);
  }
  for (auto* sums : {&bytes_, &entering_, &leaving_}) {
    for (std::size_t row = 1; row < width_; ++row) {
      for (std::size_t column = 1; column < width_; ++column) {
        (*sums)[row * width_ + column] += (*sums)[(row - 1) * width_ + column] +
                                          (*sums)[row * width_ + column - 1] -
                                          (*sums)[(row - 1) * width_ + column - 1];
      }
    }
  }
}

double CrossingBytes::in(int first, int last, bool split) const {
  const double bytes = cut(first) + between(bytes_, 0, first, first, last);
  return split ? bytes + between(entering_, 0, first, first, last) : bytes;
}

double CrossingBytes::out(int first, int last, bool split) const {
  const int layers = static_cast<int>(width_) - 1;
  const double bytes = cut(last) + between(bytes_, first, last, last, layers);
  return split ? bytes + between(leaving_, first, last, last, layers) : bytes;
}

// Returns the bytes over the cut in front of a layer; 0 at the ends of the model.
double CrossingBytes::cut(int behind) const {
  const bool inside =
      behind > 0 && behind < static_cast<int>(costs_.layers.size()) && !costs_.cut_bytes.empty();
  return inside ? static_cast<double>(costs_.cut_bytes[static_cast<std::size_t>(behind - 1)]) : 0;
}

// Returns the sum over values made in [a, b) and read in [c, d).
double CrossingBytes::between(const std::vector<double>& sums, int a, int b, int c, int d) const {
  if (sums.empty()) return 0;
  const auto at = [&](int row, int column) {
    return sums[static_cast<std::size_t>(row) * width_ + static_cast<std::size_t>(column)];
  };
  return at(b, d) - at(a, d) - at(b, c) + at(a, c);
}

}  // namespace stowage
