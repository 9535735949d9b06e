// What the kernels ask of the CUDA runtime and of cuBLASLt, by the fakes' account.
#include <cublasLt.h>
#include <gmock/gmock.h>

#include "stowage/error.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaCalls : public CudaKernelTest {
 protected:
  static KernelCase linear(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs) {
    return {"linear",
            {{"transposed", std::int64_t{0}}},
            {{Role::work, {tokens, inputs}, draws(tokens * inputs, 1)},
             {Role::work, {inputs, outputs}, draws(inputs * outputs, 2)}},
            {{Role::work, {tokens, outputs}, {}}}};
  }
  static unsigned asked() { return fake_cuda_calls("cublasLtMatmulAlgoGetHeuristic"); }

  template <class Failure>
  std::string message(const KernelCase& of) {
    try {
      run_cuda(of, DataType::f32);
    } catch (const Failure& error) {
      return error.what();
    }
    return "(accepted)";
  }
};

TEST_F(CudaCalls, AnAlgorithmIsAskedForOnceForEachProblem) {
  const unsigned before = asked();
  for (int run = 0; run < 3; ++run) run_cuda(linear(11, 12, 13), DataType::f32);
  EXPECT_EQ(asked(), before + 1);
  run_cuda(linear(11, 12, 13), DataType::f32, 64);  // at another address
  EXPECT_EQ(asked(), before + 1);
  run_cuda(linear(11, 12, 13), DataType::bf16);
  run_cuda(linear(11, 12, 14), DataType::f32);
  EXPECT_EQ(asked(), before + 3);
}

// One GEMM for bf16 with the tanh form and whole packs of outputs, else a GEMM and a kernel.
TEST_F(CudaCalls, TheGeluIsFusedWhereItCanBe) {
  struct Fused {
    const char* form;
    std::int64_t outputs;
    DataType type;
    unsigned kernels;
  };
  for (const Fused& fused : {Fused{"tanh", 16, DataType::bf16, 0}, Fused{"erf", 16, DataType::bf16, 1},
                             Fused{"tanh", 12, DataType::bf16, 1}, Fused{"tanh", 16, DataType::f32, 1}}) {
    KernelCase of = linear(5, 8, fused.outputs);
    of.kernel = "linear_gelu";
    of.attributes["form"] = std::string(fused.form);
    of.reads.push_back({Role::work, {fused.outputs}, draws(fused.outputs, 3)});
    of.writes.push_back(of.writes[0]);
    const unsigned gemms = fake_cuda_calls("cublasLtMatmul");
    const unsigned kernels = fake_cuda_calls("cudaLaunchKernel");
    run_cuda(of, fused.type);
    EXPECT_EQ(fake_cuda_calls("cublasLtMatmul"), gemms + 1) << fused.form << ", " << fused.outputs;
    EXPECT_EQ(fake_cuda_calls("cudaLaunchKernel"), kernels + fused.kernels)
        << fused.form << ", " << fused.outputs;
  }
}

// Without an algorithm for the epilogue: a plain product, then kernels of ours, and the same values. In bf16
// the product is rounded before the bias, which may be larger than the sum, is added to it.
TEST_F(CudaCalls, AnEpilogueThatCublasLtLacksIsAKernel) {
  struct Lacking {
    const char* kernel;
    DataType type;
    unsigned refused, kernels;  // questions that cuBLASLt has no answer to
    std::int64_t tokens;        // one problem each: what is lacking is remembered
  };
  for (const Lacking& lacking :
       {Lacking{"linear", DataType::f32, 1, 1, 17}, Lacking{"linear", DataType::bf16, 1, 1, 18},
        Lacking{"linear_gelu", DataType::f32, 1, 2, 19}, Lacking{"linear_gelu", DataType::bf16, 1, 1, 20},
        Lacking{"linear_gelu", DataType::bf16, 2, 2, 21}}) {
    SCOPED_TRACE(lacking.tokens);
    KernelCase of = linear(lacking.tokens, 8, 24);
    of.kernel = lacking.kernel;
    of.reads.push_back({Role::work, {24}, draws(24, 3)});
    if (of.kernel == "linear_gelu") {
      of.attributes["form"] = std::string("tanh");
      of.writes.push_back(of.writes[0]);
    }
    if (lacking.type == DataType::bf16)
      for (TestOperand& operand : of.writes) operand.tolerance = 0x1p-7;
    for (unsigned i = 1; i <= lacking.refused; ++i)
      fake_cuda_fail_call("cublasLtMatmulAlgoGetHeuristic", i, CUBLAS_STATUS_NOT_SUPPORTED);
    const unsigned gemms = fake_cuda_calls("cublasLtMatmul");
    const unsigned kernels = fake_cuda_calls("cudaLaunchKernel");
    run_cuda(of, lacking.type);
    EXPECT_EQ(fake_cuda_pending_faults(), 0U);
    EXPECT_EQ(fake_cuda_calls("cublasLtMatmul"), gemms + 1);
    EXPECT_EQ(fake_cuda_calls("cudaLaunchKernel"), kernels + lacking.kernels);
    expect_right_in(of, lacking.type);
  }
}

// Three elements of bf16 are sure to be aligned to 8 bytes, too few for cuBLASLt's epilogues: it is not
// asked.
TEST_F(CudaCalls, AShortBiasIsAddedByAKernel) {
  KernelCase of = linear(10, 8, 3);
  of.reads.push_back({Role::work, {3}, draws(3, 3)});
  const unsigned before = asked(), kernels = fake_cuda_calls("cudaLaunchKernel");
  run_cuda(of, DataType::bf16);
  EXPECT_EQ(asked(), before + 1) << "for the plain product";
  EXPECT_EQ(fake_cuda_calls("cudaLaunchKernel"), kernels + 1);
}

TEST_F(CudaCalls, AProductWithoutAnyAlgorithmIsRefusedWithAdvice) {
  fake_cuda_fail_call("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(message<InvalidInput>(linear(22, 8, 24)),
              AllOf(HasSubstr("linear"), HasSubstr("no algorithm"), HasSubstr("raise CudaOptions::scratch")));
}

TEST_F(CudaCalls, AFailedGemmNamesTheKernelAndTheCall) {
  fake_cuda_fail_call("cublasLtMatmul", 1, 0);
  EXPECT_THAT(message<DeviceError>(linear(2, 3, 4)), AllOf(HasSubstr("linear"), HasSubstr("cublasLtMatmul")));
  EXPECT_EQ(fake_cuda_pending_faults(), 0U);
}

TEST_F(CudaCalls, AFailedLaunchNamesTheKernelAndTheCall) {
  const KernelCase add{
      "add", {}, {{Role::work, {5}, draws(5, 1)}, {Role::work, {5}, draws(5, 2)}}, {{Role::work, {5}, {}}}};
  fake_cuda_fail_call("cudaLaunchKernel", 1, 0);
  EXPECT_THAT(message<DeviceError>(add), AllOf(HasSubstr("add"), HasSubstr("cudaLaunchKernel")));
  EXPECT_EQ(fake_cuda_pending_faults(), 0U);
}

TEST_F(CudaCalls, AScratchThatIsTooSmallIsRefusedWithAdvice) {
  open({.scratch = 1024});
  const KernelCase sum{
      "linear_backward_bias", {}, {{Role::work, {9, 300}, draws(2700, 1)}}, {{Role::work, {300}, {}}}};
  EXPECT_THAT(message<InvalidInput>(sum),
              AllOf(HasSubstr("column_sum"), HasSubstr("1024"), HasSubstr("raise CudaOptions::scratch")));
}

}  // namespace
}  // namespace stowage::test
