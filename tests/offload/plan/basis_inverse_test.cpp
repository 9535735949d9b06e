#include "offload/plan/basis_inverse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace stowage {
namespace {

// Column by column. Slacks in any order, and some full columns.
class Matrix {
 public:
  Matrix(std::size_t rows, std::mt19937& random) : rows_(rows), entries_(rows * rows, 0) {
    std::vector<std::size_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t j = 0; j < rows; ++j) {
      entries_[j * rows + order[j]] = 1;
      if (random() % 3 != 0) continue;
      put(j, full(random));
      entries_[j * rows + order[j]] += static_cast<double>(rows);  // regular
    }
  }
  std::vector<double> full(std::mt19937& random) const {
    std::vector<double> column(rows_);
    for (double& entry : column)
      entry = random() % 4 == 0 ? 0 : std::uniform_real_distribution(-1.0, 1.0)(random);
    return column;
  }
  void put(std::size_t j, const std::vector<double>& column) {
    std::copy(column.begin(), column.end(), entries_.begin() + static_cast<std::ptrdiff_t>(j * rows_));
  }
  const std::vector<double>& entries() const { return entries_; }
  // Of the matrix times the inverse, what it is off by from the identity, at most.
  double off_by(const BasisInverse& inverse) const {
    double most = 0;
    for (std::size_t j = 0; j < rows_; ++j)
      for (std::size_t i = 0; i < rows_; ++i) {
        double sum = i == j ? -1 : 0;
        for (std::size_t k = 0; k < rows_; ++k) sum += entries_[k * rows_ + i] * inverse.column(j)[k];
        most = std::max(most, std::abs(sum));
      }
    return most;
  }

 private:
  std::size_t rows_;
  std::vector<double> entries_;
};

TEST(BasisInverse, OfSlacksAndFullColumnsInAnyOrder) {
  std::mt19937 random(1);
  for (int time = 0; time < 50; ++time) {
    const std::size_t rows = 1 + random() % 30;
    const Matrix matrix(rows, random);
    BasisInverse inverse;
    inverse.invert(rows, matrix.entries());
    EXPECT_LT(matrix.off_by(inverse), 1e-6) << time;
  }
}

TEST(BasisInverse, FollowsTheColumnsThatAreReplaced) {
  constexpr std::size_t rows = 20;
  std::mt19937 random(2);
  Matrix matrix(rows, random);
  BasisInverse inverse;
  inverse.invert(rows, matrix.entries());
  for (int time = 0; time < 40; ++time) {
    const std::vector<double> column = matrix.full(random);
    const std::vector<double> changed = inverse.times(column);
    const auto largest = std::max_element(changed.begin(), changed.end(),
                                          [](double x, double y) { return std::abs(x) < std::abs(y); });
    const auto number = static_cast<std::size_t>(largest - changed.begin());
    matrix.put(number, column);
    inverse.replace(number, changed);
    ASSERT_LT(matrix.off_by(inverse), 1e-6) << time;
  }
}

}  // namespace
}  // namespace stowage
