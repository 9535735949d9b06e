// A Product in cuBLASLt's terms: descriptors and preferences on the stack, which need no device and
// no handle.
//
// The functions throw DeviceError that names the product if cuBLASLt refuses a value.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemm.h"

namespace stowage::cuda {

// Alignments of a product's operands in bytes, by shapes and types alone.
struct Alignments {
  std::uint32_t a = 0, b = 0, c = 0, bias = 0, pre = 0;
  auto operator<=>(const Alignments&) const = default;
};
Alignments alignments(const Product& of);

// Whether cuBLASLt's epilogue may be used: its kernels read the bias and write `pre` 16 bytes at a time,
// whatever the preferences say about the matrices, and rows of `pre` must be multiples of 8 elements.
bool suits_epilogue(const Product& of);

// Operation and layouts. cuBLASLt is column-major, so A and B change places.
class ProblemDescription {
 public:
  explicit ProblemDescription(const Product& of);  // the product must outlive it

  // Sets the addresses of the bias and of `pre`, if the epilogue has them.
  void set_addresses(const void* bias, const void* pre);
  // Sets addresses that only have the right alignment; the heuristic does not access them.
  void set_alignments(const Alignments& sure);

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value);
  void set_layout(cublasLtMatrixLayoutOpaque_t& to, const Matrix& matrix, std::int64_t rows,
                  std::int64_t columns) const;

  const Product& of_;
};

// Limits on the heuristic's choice.
class ProblemPreference {
 public:
  ProblemPreference(const Product& of, std::size_t workspace);

  cublasLtMatmulPreferenceOpaque_t preference;

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value);

  const char* name_;
};

}  // namespace stowage::cuda
