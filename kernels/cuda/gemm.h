// C = A B by cuBLASLt, row-major (as the transposed product of column-major matrices).
//
// Elements f32, bf16 or f16, summed in f32 (no TF32). cuBLASLt's heuristic is asked for eight algorithms,
// once for each problem and device, and the first one that can run in the workspace is taken. If there is
// none for an epilogue, the product is made without one and a kernel of ours does the rest. The choice
// depends on shapes and types alone: operands count as aligned to tensor_alignment of their bytes (graph.h),
// or to Matrix::alignment, whatever their addresses are. Algorithms that add partial products with atomics
// are excluded.
//
// Stream order, on the lane's stream, with the lane's scratch as the workspace. No allocation once a problem
// has been seen. Thread-safe for different lanes. Throws DeviceError, and where cuBLASLt knows no algorithm
// even for the plain product InvalidInput that says so.
//
// cuBLASLt's part in use: cublasLtMatmulDescInit, …SetAttribute (TRANSA, TRANSB, EPILOGUE, BIAS_POINTER,
// EPILOGUE_AUX_POINTER, EPILOGUE_AUX_LD), cublasLtMatrixLayoutInit, cublasLtMatmulPreferenceInit,
// …SetAttribute, cublasLtMatmulAlgoGetHeuristic, cublasLtMatmul; alpha and beta f32 on the host.
#pragma once

#include <cstdint>

#include "kernels/math/float16.h"
#include "stowage/graph.h"

namespace stowage::cuda {

struct Matrix {
  const void* data = nullptr;
  DataType type = DataType::f32;
  bool transposed = false;  // true: stored as [columns, rows]; stored rows are dense
  // Alignment of `data` in bytes, a power of two: less if it points into a tensor.
  std::int64_t alignment = static_cast<std::int64_t>(most_tensor_alignment);
};

enum class Epilogue : std::uint8_t {
  none,
  bias,            // C = A B + bias[n] on each row
  bias_gelu_tanh,  // pre = A B + bias, C = gelu(pre)
};

struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Matrix a;  // [m, k]
  Matrix b;  // [k, n]
  Matrix c;  // [m, n], written; never transposed
  Epilogue epilogue = Epilogue::none;
  const void* bias = nullptr;  // a bias in C's type
  void* pre = nullptr;         // [m, n], in the type of C
  bool add = false;            // C += A B
  const char* name = "";       // for messages
};

void multiply(const Product& product, void* stream);

template <class T>
inline constexpr DataType data_type = DataType::bf16;
template <>
inline constexpr DataType data_type<float> = DataType::f32;
template <>
inline constexpr DataType data_type<Float16> = DataType::f16;

// Adds a bias behind a GEMM, where cuBLASLt has no algorithm for the epilogue. T: float, Bfloat16 or Float16,
// computed in f32. Takes any width and alignment. Works in stream order, without scratch. Throws DeviceError.
// y[row, column] += bias[column]
template <class T>
void add_bias(std::int64_t rows, std::int64_t columns, const T* bias, T* y, void* stream);

}  // namespace stowage::cuda
