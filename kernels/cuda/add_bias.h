// Adds a bias behind a GEMM whose epilogue cannot, for lack of an algorithm of cuBLASLt. T: float, Bfloat16
// or Float16, computed in f32. Any width and alignment. Stream order, no scratch. Throws DeviceError.
#pragma once

#include <cstdint>

namespace stowage::cuda {

// y[row, column] += bias[column]
template <class T>
void add_bias(std::int64_t rows, std::int64_t columns, const T* bias, T* y, void* stream);

}  // namespace stowage::cuda
