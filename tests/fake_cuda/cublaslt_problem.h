// What cuBLASLt's opaque descriptors hold here, and the product that a set of them describes.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/fake_cuda/gemm.h"

namespace fake_cuda {

struct Operation {
  std::int32_t compute = 0, scale = 0;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1, aux_type = -1;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_leading = 0;
  std::int32_t pointer_mode = 0;
};
struct Layout {
  std::uint32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0;
  std::int32_t batch = 1;
};
// What addresses are multiples of, in bytes. cuBLASLt's default for matrices is 256.
struct AddressAlignments {
  std::uint32_t a = 256, b = 256, c = 256, d = 256;
  std::uint32_t bias = 16, aux = 16;
};
struct Preference {
  std::uint64_t workspace = 0;
  AddressAlignments alignments;
};
struct Algorithm {
  std::uint64_t magic = 0;
  std::uint64_t workspace = 0;
  AddressAlignments needs;
};
inline constexpr std::uint64_t algorithm_magic = 0x616c676f;
inline constexpr std::uint64_t wanted_workspace = 64 << 10;

static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// A descriptor's contents. Opaque types have room for them.
template <class Inner, class Opaque>
Inner& inside(Opaque* opaque) {
  return *reinterpret_cast<Inner*>(opaque);
}

void init(Operation& operation, cublasComputeType_t compute, cudaDataType_t scale);
void init(Layout& layout, cudaDataType type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading);

cublasStatus_t set(Operation& to, cublasLtMatmulDescAttributes_t attribute, const void* value,
                   std::size_t bytes);
cublasStatus_t set(Layout& to, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                   std::size_t bytes);
// Hints about reduction schemes and waves say nothing to the one algorithm there is.
cublasStatus_t set(Preference& to, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                   std::size_t bytes);

// Layouts of A, B, C and D. Nothing for what the fake, or cuBLASLt itself, cannot do.
std::optional<Product> product_of(const Operation& operation, const std::array<const Layout*, 4>& layouts);

// Whether every operand lies inside memory that the card knows.
bool is_inside(const void* address, std::size_t bytes);
bool are_inside(const Product& product, const Operands& operands);

// What the heuristic's algorithm needs: all that the preference promises of the matrices, and all that the
// addresses of bias and auxiliary matrix, which it does not follow, are multiples of. Nothing where those of
// an epilogue that uses them are below 16 bytes, which no algorithm can do.
std::optional<AddressAlignments> needed_alignments(const Operation& operation, const Product& product,
                                                   const Preference& preference);
bool are_aligned(const Product& product, const Operands& operands, const AddressAlignments& needs);

}  // namespace fake_cuda
