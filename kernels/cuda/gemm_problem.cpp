#include "kernels/cuda/gemm_problem.h"

#include <algorithm>
#include <utility>

#include "src/device/cuda/check.h"

namespace stowage::cuda {
namespace {

constexpr std::uint32_t epilogue_alignment = 16;
constexpr std::int64_t epilogue_columns = 8;  // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD is a multiple of this

cudaDataType_t library_type(DataType type) {
  if (type == DataType::bf16) return CUDA_R_16BF;
  return type == DataType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

std::uint32_t alignment_of(std::int64_t elements, DataType type) {
  return static_cast<std::uint32_t>(tensor_alignment(static_cast<Bytes>(elements) * size_of(type)));
}

std::uint32_t alignment_of(const Matrix& matrix, std::int64_t elements) {
  return std::min(alignment_of(elements, matrix.type), static_cast<std::uint32_t>(matrix.alignment));
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gelu_tanh:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::none:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

Alignments alignments(const Product& of) {
  return {alignment_of(of.a, of.m * of.k), alignment_of(of.b, of.k * of.n), alignment_of(of.c, of.m * of.n),
          alignment_of(of.n, of.c.type), alignment_of(of.m * of.n, of.c.type)};
}

bool suits_epilogue(const Product& of) {
  if (of.epilogue == Epilogue::none) return true;
  const Alignments sure = alignments(of);
  if (sure.bias < epilogue_alignment) return false;
  return of.epilogue == Epilogue::bias || (sure.pre >= epilogue_alignment && of.n % epilogue_columns == 0);
}

ProblemDescription::ProblemDescription(const Product& of) : of_(of) {
  check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit",
        of.name);
  set(CUBLASLT_MATMUL_DESC_TRANSA, of.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, of.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(of.epilogue));
  if (of.epilogue == Epilogue::bias_gelu_tanh) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, of.n);
  set_layout(left, of.b, of.k, of.n);
  set_layout(right, of.a, of.m, of.k);
  set_layout(result, of.c, of.m, of.n);
}

void ProblemDescription::set_addresses(const void* bias, const void* pre) {
  if (of_.epilogue == Epilogue::none) return;
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (of_.epilogue == Epilogue::bias_gelu_tanh) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
}

void ProblemDescription::set_alignments(const Alignments& sure) {
  const auto aligned = [](std::uintptr_t to) {
    return reinterpret_cast<const void*>(to);  // NOLINT(performance-no-int-to-ptr)
  };
  set_addresses(aligned(sure.bias), aligned(sure.pre));
}

template <class Value>
void ProblemDescription::set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check(
      cublasLtMatmulDescSetAttribute(&operation, attribute, static_cast<const void*>(&value), sizeof(value)),
      "cublasLtMatmulDescSetAttribute", of_.name);
}

void ProblemDescription::set_layout(cublasLtMatrixLayoutOpaque_t& to, const Matrix& matrix, std::int64_t rows,
                                    std::int64_t columns) const {
  if (matrix.transposed) std::swap(rows, columns);
  check(cublasLtMatrixLayoutInit(&to, library_type(matrix.type), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
        "cublasLtMatrixLayoutInit", of_.name);
}

ProblemPreference::ProblemPreference(const Product& of, std::size_t workspace) : name_(of.name) {
  const Alignments sure = alignments(of);
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit", name_);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, sure.b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, sure.a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, sure.c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, sure.c);
  // Partial sums are added in f32; in an output of 16 bits they would be rounded first.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
}

template <class Value>
void ProblemPreference::set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute", name_);
}

}  // namespace stowage::cuda
