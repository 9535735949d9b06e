#include "tests/fake_cuda/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/clones.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace fake_cuda {
namespace {

constexpr double two_over_pi_root = 0.79788456080286535588;
constexpr double cubic = 0.044715;

double gelu(double x) { return 0.5 * x * (1 + std::tanh(two_over_pi_root * (x + cubic * x * x * x))); }

double gelu_slope(double x) {
  const double t = std::tanh(two_over_pi_root * (x + cubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * two_over_pi_root * (1 + 3 * cubic * x * x);
}

// Rows in tiles of `width`, the elements of one column of a tile next to each other; zeros behind the end.
std::vector<double> packed(const Matrix& matrix, bool transposed, const void* data, std::size_t width) {
  const std::size_t rows = transposed ? matrix.columns : matrix.rows;
  const std::size_t columns = transposed ? matrix.rows : matrix.columns;
  std::vector<double> values((rows + width - 1) / width * width * columns);
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row) {
      values[(row / width * columns + column) * width + row % width] =
          load(matrix.type, data, transposed ? matrix.at(column, row) : matrix.at(row, column));
    }
  }
  return values;
}

constexpr std::size_t tile_rows = 8;
constexpr std::size_t tile_columns = 4;
using Vector = double __attribute__((vector_size(tile_rows * sizeof(double))));

// sums[column][row], of op(A)'s tile by that of op(B)^T
STOWAGE_CLONES void multiply_tile(std::size_t k, const double* a, const double* b, double* sums) {
  Vector first{}, second{}, third{}, fourth{};
  for (std::size_t inner = 0; inner < k; ++inner) {
    Vector rows;
    std::memcpy(&rows, a + inner * tile_rows, sizeof(rows));
    first += rows * b[inner * tile_columns];
    second += rows * b[inner * tile_columns + 1];
    third += rows * b[inner * tile_columns + 2];
    fourth += rows * b[inner * tile_columns + 3];
  }
  for (const Vector& column : {first, second, third, fourth}) {
    std::memcpy(sums, &column, sizeof(column));
    sums += tile_rows;
  }
}

double finish(const Product& product, const Operands& with, std::size_t row, std::size_t column,
              double value) {
  const Epilogue& epilogue = product.epilogue;
  if (epilogue.add_bias) value += load(product.bias_type, with.bias, row);
  const std::size_t aux = column * product.aux_leading + row;
  if (epilogue.keep_aux) store(product.aux_type, with.aux, aux, value);
  if (epilogue.gelu) value = gelu(value);
  if (epilogue.gelu_backward) value *= gelu_slope(load(product.aux_type, with.aux, aux));
  return value;
}

// `value` of each column of a row, added up.
template <class Value>
std::vector<double> row_sums(std::size_t rows, std::size_t columns, Value value) {
  std::vector<double> sums(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) sums[row] += value(row, column);
  }
  return sums;
}

std::vector<double> bias_gradient(const Product& product, const Operands& with,
                                  const std::vector<double>& result) {
  const auto element = [](const Matrix& matrix, bool transposed, const void* data) {
    return [=](std::size_t row, std::size_t column) {
      return load(matrix.type, data, transposed ? matrix.at(column, row) : matrix.at(row, column));
    };
  };
  switch (product.epilogue.bias_gradient) {
    case Epilogue::BiasGradient::none:
      break;
    case Epilogue::BiasGradient::of_d:
      return row_sums(product.m(), product.n(), [&](std::size_t row, std::size_t column) {
        return result[column * product.m() + row];
      });
    case Epilogue::BiasGradient::of_a:
      return row_sums(product.m(), product.k(), element(product.a, product.transpose_a, with.a));
    case Epilogue::BiasGradient::of_b:
      return row_sums(product.n(), product.k(), element(product.b, !product.transpose_b, with.b));
  }
  return {};
}

// Column by column.
std::vector<double> products(const Product& product, const Operands& with) {
  const std::size_t m = product.m(), n = product.n(), k = product.k();
  const std::vector<double> a = packed(product.a, product.transpose_a, with.a, tile_rows);
  const std::vector<double> b = packed(product.b, !product.transpose_b, with.b, tile_columns);
  std::vector<double> result(m * n);
  std::array<double, tile_rows * tile_columns> sums;
  for (std::size_t column = 0; column < n; column += tile_columns) {
    for (std::size_t row = 0; row < m; row += tile_rows) {
      multiply_tile(k, a.data() + row * k, b.data() + column * k, sums.data());
      for (std::size_t i = 0; i < std::min(tile_columns, n - column); ++i) {
        std::copy_n(sums.data() + i * tile_rows, std::min(tile_rows, m - row),
                    result.data() + (column + i) * m + row);
      }
    }
  }
  return result;
}

}  // namespace

std::size_t bytes_of(Element type) {
  return type == Element::f32 ? sizeof(float) : sizeof(stowage::Bfloat16);
}

double load(Element type, const void* data, std::size_t index) {
  if (type == Element::f32) return static_cast<const float*>(data)[index];
  if (type == Element::f16) return static_cast<float>(static_cast<const stowage::Float16*>(data)[index]);
  return static_cast<float>(static_cast<const stowage::Bfloat16*>(data)[index]);
}

void store(Element type, void* data, std::size_t index, double value) {
  const auto narrowed = static_cast<float>(value);
  if (type == Element::f32) {
    static_cast<float*>(data)[index] = narrowed;
  } else if (type == Element::f16) {
    static_cast<stowage::Float16*>(data)[index] = stowage::Float16(narrowed);
  } else {
    static_cast<stowage::Bfloat16*>(data)[index] = stowage::Bfloat16(narrowed);
  }
}

std::size_t Matrix::span_bytes() const { return ((columns - 1) * leading + rows) * bytes_of(type); }

bool Product::shapes_agree() const {
  const std::size_t a_rows = transpose_a ? a.columns : a.rows;
  const std::size_t b_rows = transpose_b ? b.columns : b.rows;
  const std::size_t b_columns = transpose_b ? b.rows : b.columns;
  return a.is_valid() && b.is_valid() && c.is_valid() && d.is_valid() && a_rows == m() && b_rows == k() &&
         b_columns == n() && c.rows == m() && c.columns == n();
}

void multiply(const Product& product, const Operands& with) {
  const std::size_t m = product.m();
  std::vector<double> result = products(product, with);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t row = i % m, column = i / m;
    double value = static_cast<double>(with.alpha) * result[i];
    if (with.beta != 0) {
      value += static_cast<double>(with.beta) * load(product.c.type, with.c, product.c.at(row, column));
    }
    result[i] = finish(product, with, row, column, value);
    store(product.d.type, with.d, product.d.at(row, column), result[i]);
  }
  const std::vector<double> gradient = bias_gradient(product, with, result);
  for (std::size_t i = 0; i < gradient.size(); ++i) store(product.bias_type, with.bias, i, gradient[i]);
}

}  // namespace fake_cuda
