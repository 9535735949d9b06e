#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/fake_cuda/fake_cuda_fixture.h"
#include "tests/fake_cuda/gemm.h"

namespace fake_cuda_test {
namespace {

using fake_cuda::Element;

constexpr int m = 11, n = 6, k = 7;

// Element `index` of any operand: small, of both signs, exact in bf16.
double value(int index, int salt) { return static_cast<double>((index * 7 + salt * 3) % 13 - 6) / 4; }

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// One product by the library, with room to spare in every column.
class Problem {
 public:
  Problem(Element type, bool transpose_a, bool transpose_b,
          std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT)
      : type_(type),
        transpose_a_(transpose_a),
        transpose_b_(transpose_b),
        a_(filled(transpose_a ? k : m, transpose_a ? m : k, 1)),
        b_(filled(transpose_b ? n : k, transpose_b ? k : n, 2)),
        d_(filled(m, n, 3)),
        aux_(filled(m, n, 5)),
        bias_(filled(std::max(m, n), 1, 4)) {
    const cudaDataType data_type = type == Element::f32 ? CUDA_R_32F : CUDA_R_16BF;
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{leading});
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, int rows, int columns) {
      EXPECT_EQ(cublasLtMatrixLayoutInit(&to, data_type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), leading),
                CUBLAS_STATUS_SUCCESS);
    };
    layout(a_layout_, transpose_a ? k : m, transpose_a ? m : k);
    layout(b_layout_, transpose_b ? n : k, transpose_b ? k : n);
    layout(d_layout_, m, n);
  }
  ~Problem() { cublasLtDestroy(handle_); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // Takes the last of the results, which is the one that can be used.
  cublasStatus_t find(std::size_t workspace_bytes, std::uint32_t alignment = 256) {
    cublasLtMatmulPreferenceOpaque_t preference;
    EXPECT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& to) {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &to, sizeof(to)),
                CUBLAS_STATUS_SUCCESS);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, alignment);
    int count = 0;
    results.assign(8, {});
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &operation_, &a_layout_, &b_layout_, &d_layout_, &d_layout_,
                                       &preference, 8, results.data(), &count);
    results.resize(static_cast<std::size_t>(count));
    if (!results.empty()) found = results.back();
    return status;
  }

  // `shift`: bytes that A lies behind its 256-byte alignment.
  cublasStatus_t run(float alpha, float beta, void* workspace = nullptr, std::size_t workspace_bytes = 0,
                     cudaStream_t stream = nullptr, std::size_t shift = 0) {
    return cublasLtMatmul(handle_, &operation_, &alpha, a_.data() + shift, &a_layout_, b_.data(), &b_layout_,
                          &beta, d_.data(), &d_layout_, d_.data(), &d_layout_, &found.algo, workspace,
                          workspace_bytes, stream);
  }

  std::uint8_t* bias() const { return bias_.data(); }
  std::uint8_t* auxiliary() const { return aux_.data(); }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& to) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation_, attribute, &to, sizeof(to)), CUBLAS_STATUS_SUCCESS);
  }

  // sum over k of op(A) op(B)
  double product(int row, int column) const {
    double sum = 0;
    for (int i = 0; i < k; ++i) sum += a(row, i) * b(i, column);
    return sum;
  }
  double a(int row, int i) const { return value(transpose_a_ ? row * leading + i : i * leading + row, 1); }
  double b(int i, int column) const {
    return value(transpose_b_ ? i * leading + column : column * leading + i, 2);
  }
  static double old(int row, int column) { return value(column * leading + row, 3); }
  static double aux(int row, int column) { return value(column * leading + row, 5); }

  double d(int row, int column) const { return at(d_, row, column); }
  double aux_now(int row, int column) const { return at(aux_, row, column); }
  double bias_now(int index) const { return at(bias_, index, 0); }

  // What a value rounds to when it is stored.
  double rounded(double exact) const {
    std::uint32_t word = 0;
    fake_cuda::store(type_, &word, 0, exact);
    return fake_cuda::load(type_, &word, 0);
  }

  static constexpr int leading = 16;
  static constexpr int room = 8;  // elements behind each operand, so that it can be shifted
  cublasLtMatmulHeuristicResult_t found{};
  std::vector<cublasLtMatmulHeuristicResult_t> results;

 private:
  std::vector<std::uint8_t> filled(int rows, int columns, int salt) const {
    const int count = (columns - 1) * leading + rows + room;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * bytes_of(type_));
    for (int i = 0; i < count; ++i)
      fake_cuda::store(type_, bytes.data(), static_cast<std::size_t>(i), value(i, salt));
    return bytes;
  }
  double at(const TestBuffer<std::uint8_t>& matrix, int row, int column) const {
    return fake_cuda::load(type_, matrix.data(), static_cast<std::size_t>(column * leading + row));
  }

  Element type_;
  bool transpose_a_, transpose_b_;
  TestBuffer<std::uint8_t> a_, b_, d_, aux_, bias_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t a_layout_{}, b_layout_{}, d_layout_{};
};

class CublasLtTest : public FakeCuda {};

template <class Expected>
void expect_result(const Problem& problem, Expected expected) {
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      const double exact = problem.rounded(expected(row, column));
      EXPECT_NEAR(problem.d(row, column), exact, std::abs(exact) * 1e-6) << row << ", " << column;
    }
  }
}

TEST_F(CublasLtTest, MultipliesEveryTranspositionOfBothTypes) {
  for (const Element type : {Element::f32, Element::bf16}) {
    for (const int which : {0, 1, 2, 3}) {
      Problem problem(type, which % 2 != 0, which / 2 != 0);
      ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(problem.run(2, 0), CUBLAS_STATUS_SUCCESS);
      expect_result(problem, [&](int row, int column) { return 2 * problem.product(row, column); });
    }
  }
}

TEST_F(CublasLtTest, AddsToWhatIsThere) {
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(problem.run(1, 1), CUBLAS_STATUS_SUCCESS);
  expect_result(
      problem, [&](int row, int column) { return problem.product(row, column) + Problem::old(row, column); });
}

TEST_F(CublasLtTest, AddsABiasOfRows) {
  for (const Element type : {Element::f32, Element::bf16}) {
    Problem problem(type, true, false, CUBLASLT_EPILOGUE_BIAS);
    ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(problem.run(1, 0), CUBLAS_STATUS_SUCCESS);
    expect_result(problem, [&](int row, int column) { return problem.product(row, column) + value(row, 4); });
  }
}

TEST_F(CublasLtTest, KeepsWhatGeluIsTakenOf) {
  Problem problem(Element::f32, true, false, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(problem.run(1, 0), CUBLAS_STATUS_SUCCESS);
  const auto before = [&](int row, int column) { return problem.product(row, column) + value(row, 4); };
  expect_result(problem, [&](int row, int column) { return gelu(before(row, column)); });
  EXPECT_EQ(problem.aux_now(3, 2), before(3, 2));
  EXPECT_EQ(problem.aux_now(m - 1, n - 1), before(m - 1, n - 1));
}

TEST_F(CublasLtTest, DifferentiatesGeluAndSumsTheBiasGradient) {
  Problem problem(Element::f32, false, true, CUBLASLT_EPILOGUE_DGELU_BGRAD);
  ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(problem.run(1, 0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int row = 0; row < m; ++row) {
    double sum = 0;
    for (int column = 0; column < n; ++column) {
      const double at = Problem::aux(row, column), step = 1e-6;
      const double slope = (gelu(at + step) - gelu(at - step)) / (2 * step);
      EXPECT_NEAR(problem.d(row, column), problem.product(row, column) * slope, 1e-5);
      sum += problem.product(row, column) * slope;
    }
    EXPECT_NEAR(problem.bias_now(row), sum, 1e-5);
  }
}

TEST_F(CublasLtTest, SumsItsInputsForABiasGradient) {
  Problem of_a(Element::f32, false, false, CUBLASLT_EPILOGUE_BGRADA);
  Problem of_b(Element::f32, false, true, CUBLASLT_EPILOGUE_BGRADB);
  for (Problem* problem : {&of_a, &of_b}) {
    ASSERT_EQ(problem->find(0), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(problem->run(1, 0), CUBLAS_STATUS_SUCCESS);
  }
  expect_result(of_a, [&](int row, int column) { return of_a.product(row, column); });
  double a_sum = 0, b_sum = 0;
  for (int i = 0; i < k; ++i) {
    a_sum += of_a.a(2, i);
    b_sum += of_b.b(i, 4);
  }
  EXPECT_EQ(of_a.bias_now(2), a_sum);
  EXPECT_EQ(of_b.bias_now(4), b_sum);
}

TEST_F(CublasLtTest, UsesTheWorkspaceItAskedFor) {
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(1 << 20), CUBLAS_STATUS_SUCCESS);
  const std::size_t bytes = problem.found.workspaceSize;
  ASSERT_GT(bytes, 0U);
  ASSERT_LE(bytes, 1U << 20);
  const TestBuffer<std::uint8_t> workspace(std::vector<std::uint8_t>(bytes, 0));
  EXPECT_EQ(problem.run(1, 0, workspace.data(), bytes - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(problem.run(1, 0, nullptr, bytes), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(problem.run(1, 0, workspace.data(), bytes), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(workspace.read(), std::vector<std::uint8_t>(bytes, 0xff));
}

TEST_F(CublasLtTest, RunsInStreamOrder) {
  const TestStream stream;
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
  Gate gate;
  gate.hold(stream);
  ASSERT_EQ(problem.run(1, 0, nullptr, 0, stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(problem.d(0, 0), Problem::old(0, 0));
  gate.open();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(problem.d(0, 0), problem.product(0, 0));
}

TEST_F(CublasLtTest, RefusesWhatItCannotDo) {
  Problem relu(Element::f32, false, false, CUBLASLT_EPILOGUE_RELU);
  EXPECT_EQ(relu.find(0), CUBLAS_STATUS_NOT_SUPPORTED);
  Problem odd_aux(Element::f32, false, false, CUBLASLT_EPILOGUE_GELU_AUX);
  odd_aux.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{m + 1});
  EXPECT_EQ(odd_aux.find(0), CUBLAS_STATUS_NOT_SUPPORTED);
  Problem host_bias(Element::f32, false, false, CUBLASLT_EPILOGUE_BIAS);
  ASSERT_EQ(host_bias.find(0), CUBLAS_STATUS_SUCCESS);
  float bias[m] = {};
  host_bias.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias));
  EXPECT_EQ(host_bias.run(1, 0), CUBLAS_STATUS_INVALID_VALUE);
}

// The first cannot run here, the second has no room for its workspace.
TEST_F(CublasLtTest, NamesAlgorithmsThatCannotBeUsedFirst) {
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(4096), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(problem.results.size(), 3U);
  EXPECT_NE(problem.results[0].state, CUBLAS_STATUS_SUCCESS);
  EXPECT_GT(problem.results[1].workspaceSize, 4096U);
  for (const std::size_t unusable : {0U, 1U}) {
    problem.found = problem.results[unusable];
    EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_INVALID_VALUE);
  }
}

TEST_F(CublasLtTest, RefusesMatricesLessAlignedThanThePreferenceSays) {
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(0, 16), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(problem.run(1, 0, nullptr, 0, nullptr, 16), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(problem.run(1, 0, nullptr, 0, nullptr, 8), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(problem.find(0, 32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(problem.run(1, 0, nullptr, 0, nullptr, 16), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtTest, RefusesAMisalignedBiasAndAuxiliaryMatrix) {
  for (const auto attribute :
       {CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER}) {
    Problem problem(Element::f32, false, false, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    std::uint8_t* const base =
        attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? problem.bias() : problem.auxiliary();
    problem.set(attribute, base + 16);
    ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    problem.set(attribute, base + 8);
    EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(problem.find(0), CUBLAS_STATUS_NOT_SUPPORTED);
    // An algorithm for what was better aligned.
    problem.set(attribute, base);
    ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
    problem.set(attribute, base + 16);
    EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_INVALID_VALUE);
  }
}

TEST_F(CublasLtTest, FailsOnDemandAndWithTheCard) {
  Problem problem(Element::f32, false, false);
  ASSERT_EQ(problem.find(0), CUBLAS_STATUS_SUCCESS);
  fake_cuda_fail_call("cublasLtMatmul", 1, CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_ALLOC_FAILED);
  fake_cuda_fault_kernel(1, cudaErrorIllegalAddress);
  EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(problem.run(1, 0), CUBLAS_STATUS_EXECUTION_FAILED);
  fake_cuda_reset();
}

}  // namespace
}  // namespace fake_cuda_test
