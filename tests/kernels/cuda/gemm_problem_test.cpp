// The real cuBLASLt takes every value that a product sets, and gives it back. No card is needed for that.
#include "kernels/cuda/gemm_problem.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/error.h"

namespace stowage::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GemmProblem : public ::testing::Test {
 protected:
  void SetUp() override {
    Dl_info library{};
    ASSERT_NE(dladdr(reinterpret_cast<void*>(&cublasLtMatmulDescInit_internal), &library), 0);
    ASSERT_THAT(library.dli_fname, Not(HasSubstr("fake_cuda")));
  }
};

template <class Value>
Value value_of(ProblemDescription& problem, cublasLtMatmulDescAttributes_t attribute) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(&problem.operation, attribute, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}

template <class Value>
Value value_of(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(&layout, attribute, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  return value;
}

template <class Value>
Value value_of(ProblemPreference& wanted, cublasLtMatmulPreferenceAttributes_t attribute) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(
      cublasLtMatmulPreferenceGetAttribute(&wanted.preference, attribute, &value, sizeof(value), &written),
      CUBLAS_STATUS_SUCCESS);
  return value;
}

Product product(Epilogue epilogue, DataType type, bool a_transposed, bool b_transposed) {
  Product of{1024, 768, 3072, {nullptr, type, a_transposed}, {nullptr, type, b_transposed}, {nullptr, type}};
  of.epilogue = epilogue;
  of.name = "test";
  return of;
}

std::vector<Product> products() {
  std::vector<Product> all;
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu_tanh})
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
      for (const int transposed : {0, 1, 2, 3})
        all.push_back(product(epilogue, type, transposed % 2 != 0, transposed / 2 != 0));
  // The head's gradient: sums in f32 of products in bf16.
  all.push_back(product(Epilogue::none, DataType::bf16, true, false));
  all.back().c.type = DataType::f32;
  return all;
}

void expect_layout(cublasLtMatrixLayoutOpaque_t& layout, const Matrix& matrix, std::int64_t rows,
                   std::int64_t columns) {
  if (matrix.transposed) std::swap(rows, columns);
  const auto type = static_cast<std::uint32_t>(matrix.type == DataType::bf16  ? CUDA_R_16BF
                                               : matrix.type == DataType::f16 ? CUDA_R_16F
                                                                              : CUDA_R_32F);
  EXPECT_EQ(value_of<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE), type);
  EXPECT_EQ(value_of<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS),
            static_cast<std::uint64_t>(columns));
  EXPECT_EQ(value_of<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS), static_cast<std::uint64_t>(rows));
  EXPECT_EQ(value_of<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD), columns);
}

TEST_F(GemmProblem, TheLibraryTakesEveryDescription) {
  for (const Product& of : products()) {
    ProblemDescription problem(of);
    problem.set_alignments(alignments(of));
    const bool bias = of.epilogue != Epilogue::none, gelu = of.epilogue == Epilogue::bias_gelu_tanh;
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    EXPECT_EQ(value_of<std::int32_t>(problem, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), CUBLAS_COMPUTE_32F);
    EXPECT_EQ(value_of<std::int32_t>(problem, CUBLASLT_MATMUL_DESC_SCALE_TYPE), CUDA_R_32F);
    EXPECT_EQ(value_of<std::int32_t>(problem, CUBLASLT_MATMUL_DESC_TRANSA), operation(of.b.transposed));
    EXPECT_EQ(value_of<std::int32_t>(problem, CUBLASLT_MATMUL_DESC_TRANSB), operation(of.a.transposed));
    const auto epilogue = static_cast<std::uint32_t>(gelu   ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                                     : bias ? CUBLASLT_EPILOGUE_BIAS
                                                            : CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_EQ(value_of<std::uint32_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE), epilogue);
    EXPECT_EQ(value_of<std::uintptr_t>(problem, CUBLASLT_MATMUL_DESC_BIAS_POINTER), bias ? 256U : 0U);
    EXPECT_EQ(value_of<std::uintptr_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER), gelu ? 256U : 0U);
    EXPECT_EQ(value_of<std::int64_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), gelu ? of.n : 0);
    expect_layout(problem.left, of.b, of.k, of.n);
    expect_layout(problem.right, of.a, of.m, of.k);
    expect_layout(problem.result, of.c, of.m, of.n);
  }
}

TEST_F(GemmProblem, TheLibraryTakesEveryPreference) {
  Product of = product(Epilogue::bias, DataType::bf16, false, false);
  of.a.alignment = 64;
  ProblemPreference wanted(of, 32 << 20);
  EXPECT_EQ(value_of<std::uint64_t>(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 32U << 20);
  EXPECT_EQ(value_of<std::uint32_t>(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 256U);
  EXPECT_EQ(value_of<std::uint32_t>(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 64U);
  EXPECT_EQ(value_of<std::uint32_t>(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 256U);
  EXPECT_EQ(value_of<std::uint32_t>(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 256U);
  EXPECT_EQ(value_of<std::uint32_t>(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
}

// 16 bytes of bias, and rows of 8 elements, of a matrix that begins at a multiple of 16 bytes.
TEST(GemmAlignments, GoByShapesAndTypes) {
  Product of = product(Epilogue::bias, DataType::bf16, false, false);
  EXPECT_EQ(alignments(of), (Alignments{256, 256, 256, 256, 256}));
  of.n = 24;
  EXPECT_EQ(alignments(of).bias, 64U);
  of.n = 5;
  EXPECT_EQ(alignments(of).bias, 16U);
  EXPECT_TRUE(suits_epilogue(of));
  of.n = 4;
  EXPECT_EQ(alignments(of).bias, 8U);
  EXPECT_FALSE(suits_epilogue(of));
  of.c.type = DataType::f32;
  EXPECT_TRUE(suits_epilogue(of));
  of.epilogue = Epilogue::bias_gelu_tanh;
  EXPECT_FALSE(suits_epilogue(of)) << "rows of 4";
  of.n = 8;
  EXPECT_TRUE(suits_epilogue(of));
  of.c.alignment = 4;
  EXPECT_EQ(alignments(of).c, 4U);
}

}  // namespace
}  // namespace stowage::cuda
