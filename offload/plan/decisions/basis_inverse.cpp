#include "offload/plan/decisions/basis_inverse.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stowage {

void BasisInverse::invert(std::size_t rows, std::vector<double> matrix) {
  rows_ = rows;
  entries_ = std::move(matrix);
  std::vector<std::size_t> swapped(rows_);  // by row: with which one
  for (std::size_t j = 0; j < rows_; ++j) {
    swapped[j] = j;
    const double* const column = at(j);
    const auto zeros = static_cast<std::size_t>(std::count(column, column + rows_, 0.0));
    if (column[j] == 1 && zeros + 1 == rows_) continue;
    const double* const largest = std::max_element(
        column + j, column + rows_, [](double x, double y) { return std::abs(x) < std::abs(y); });
    swapped[j] = static_cast<std::size_t>(largest - column);
    if (swapped[j] != j)
      for (std::size_t k = 0; k < rows_; ++k) std::swap(at(k)[j], at(k)[swapped[j]]);
    eliminate(j);
  }
  for (std::size_t j = rows_; j-- > 0;)
    if (swapped[j] != j) std::swap_ranges(at(j), at(j) + rows_, at(swapped[j]));
}

std::vector<double> BasisInverse::times(const std::vector<double>& column) const {
  std::vector<double> result(rows_, 0);
  for (std::size_t j = 0; j < rows_; ++j)
    if (column[j] != 0)
      for (std::size_t i = 0; i < rows_; ++i) result[i] += this->column(j)[i] * column[j];
  return result;
}

// The row of that number is divided, and `changed` times it subtracted from the others.
void BasisInverse::replace(std::size_t number, std::vector<double> changed) {
  const double by = std::exchange(changed[number], 0);
  for (std::size_t j = 0; j < rows_; ++j) {
    double* const column = at(j);
    if (column[number] == 0) continue;
    const double entry = column[number] /= by;
    for (std::size_t i = 0; i < rows_; ++i) column[i] -= changed[i] * entry;
  }
}

// One step of Gauss and Jordan in place: the matrix's column of that number becomes a unit vector, and in its
// place stands that column of the inverse.
void BasisInverse::eliminate(std::size_t number) {
  double* const column = at(number);
  std::vector<double> changed(column, column + rows_);
  std::fill_n(column, rows_, 0.0);
  column[number] = 1;
  replace(number, std::move(changed));
}

}  // namespace stowage
