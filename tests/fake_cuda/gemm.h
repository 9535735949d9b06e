// Matrix products as cuBLASLt defines them, by plain loops: column-major, f32, bf16 or f16 elements, sums in
// f64, one rounding at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

enum class Element { f32, bf16, f16 };
std::size_t bytes_of(Element type);
double load(Element type, const void* data, std::size_t index);
void store(Element type, void* data, std::size_t index, double value);

struct Matrix {
  Element type = Element::f32;
  std::size_t rows = 0, columns = 0;
  std::size_t leading = 0;  // elements from one column to the next

  std::size_t at(std::size_t row, std::size_t column) const { return column * leading + row; }
  std::size_t span_bytes() const;  // from the first element to the last
  bool is_valid() const { return rows > 0 && columns > 0 && leading >= rows; }
};

// What happens to the products before they are stored. GELU is the tanh form.
struct Epilogue {
  bool add_bias = false;       // of D's rows
  bool gelu = false;           // ... of product + bias
  bool gelu_backward = false;  // D = product * gelu'(aux)
  bool keep_aux = false;       // store what GELU is taken of
  enum class BiasGradient { none, of_d, of_a, of_b } bias_gradient = BiasGradient::none;
  bool reads_or_writes_bias() const { return add_bias || bias_gradient != BiasGradient::none; }
  bool reads_or_writes_aux() const { return keep_aux || gelu_backward; }
};

// D = epilogue(alpha op(A) op(B) + beta C)
struct Product {
  Matrix a, b, c, d;
  bool transpose_a = false, transpose_b = false;
  Epilogue epilogue;
  Element bias_type = Element::f32, aux_type = Element::f32;
  std::size_t aux_leading = 0;

  std::size_t m() const { return d.rows; }
  std::size_t n() const { return d.columns; }
  std::size_t k() const { return transpose_a ? a.rows : a.columns; }
  bool shapes_agree() const;
};

struct Operands {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void *d = nullptr, *bias = nullptr, *aux = nullptr;
  float alpha = 1, beta = 0;
};

void multiply(const Product& product, const Operands& operands);

}  // namespace fake_cuda
