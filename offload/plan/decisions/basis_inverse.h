// The inverse of a linear program's basis: a square matrix, of which one column at a time is replaced. Most
// columns are those of slacks, and most entries zero.
#pragma once

#include <cstddef>
#include <vector>

namespace stowage {

class BasisInverse {
 public:
  // `matrix`: rows × rows entries, column by column; regular. By Gauss and Jordan, in place, with the largest
  // pivot of each column.
  void invert(std::size_t rows, std::vector<double> matrix);
  const double* column(std::size_t number) const { return entries_.data() + number * rows_; }
  // The inverse times a column.
  std::vector<double> times(const std::vector<double>& column) const;
  // That of the matrix in which column `number` is another one, `changed`: the inverse times that column,
  // whose entry of that number is not zero.
  void replace(std::size_t number, std::vector<double> changed);

 private:
  double* at(std::size_t number) { return entries_.data() + number * rows_; }
  void eliminate(std::size_t number);

  std::size_t rows_ = 0;
  std::vector<double> entries_;  // column by column
};

}  // namespace stowage
