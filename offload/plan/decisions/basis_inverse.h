// The inverse of a linear program's basis, a square matrix whose columns are replaced one at a time. Most
// columns belong to slacks, and most entries are zero.
#pragma once

#include <cstddef>
#include <vector>

namespace stowage {

class BasisInverse {
 public:
  // Inverts `matrix`, which has rows × rows entries, column by column. Requires a regular matrix.
  // Gauss-Jordan elimination in place, with the largest pivot of each column.
  void invert(std::size_t rows, std::vector<double> matrix);
  const double* column(std::size_t number) const { return entries_.data() + number * rows_; }
  // Returns the inverse times `column`.
  std::vector<double> times(const std::vector<double>& column) const;
  // Updates the inverse after column `number` of the matrix has been replaced. `changed`: the inverse so far
  // times the new column. Requires changed[number] != 0.
  void replace(std::size_t number, std::vector<double> changed);

 private:
  double* at(std::size_t number) { return entries_.data() + number * rows_; }
  void eliminate(std::size_t number);

  std::size_t rows_ = 0;
  std::vector<double> entries_;  // entries, column by column
};

}  // namespace stowage
