// What the kernels ask of the CUDA runtime and of cuBLASLt, by the fakes' account.
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
  run_cuda(linear(11, 12, 13), DataType::f32, 8);  // at another address
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
