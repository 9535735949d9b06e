#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "stowage/launch_table.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The contract's kernels.
constexpr const char* kernels[] = {"embedding",
                                   "embedding_backward",
                                   "position_backward",
                                   "layer_norm",
                                   "layer_norm_backward",
                                   "layer_norm_backward_parameters",
                                   "rms_norm",
                                   "rms_norm_backward",
                                   "rms_norm_backward_parameters",
                                   "linear",
                                   "linear_backward_input",
                                   "linear_backward_weight",
                                   "linear_backward_bias",
                                   "linear_gelu",
                                   "gelu",
                                   "gelu_backward",
                                   "swiglu",
                                   "swiglu_backward",
                                   "tanh",
                                   "tanh_backward",
                                   "first_token",
                                   "first_token_backward",
                                   "attention",
                                   "attention_backward",
                                   "attention_scores",
                                   "top_tokens",
                                   "take_rows",
                                   "take_rows_backward",
                                   "add_rows",
                                   "rotary",
                                   "rotary_backward",
                                   "dropout",
                                   "add",
                                   "accumulate",
                                   "tree_sum",
                                   "cross_entropy",
                                   "cross_entropy_backward",
                                   "linear_cross_entropy",
                                   "head_statistics",
                                   "head_loss",
                                   "head_loss_backward",
                                   "head_backward",
                                   "add_loss",
                                   "square_sum",
                                   "square_sums",
                                   "clip",
                                   "norm_part",
                                   "adamw",
                                   "encode",
                                   "decode"};

std::string refusal(const Op& op, const LaunchArguments& arguments) {
  try {
    cuda_launch_table().find(op)(arguments);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(CudaLaunchTable, HasEveryKernelThatTheCpuHas) {
  const LaunchTable cpu = cpu_launch_table();
  const LaunchTable cuda = cuda_launch_table();
  for (const char* kernel : kernels) {
    Op op;
    op.name = op.kernel = kernel;
    EXPECT_NO_THROW(cpu.find(op)) << kernel;
    EXPECT_NO_THROW(cuda.find(op)) << kernel;
  }
}

TEST(CudaLaunchTable, RefusesF64AndSaysWhatItTakes) {
  const Tensor x{"x", DataType::f64, {4}, TensorKind::activation, {}};
  const Operand reads[] = {{nullptr, &x}, {nullptr, &x}};
  const Operand writes[] = {{nullptr, &x}};
  Op op;
  op.name = "h.0.add";
  op.kernel = "add";
  EXPECT_THAT(refusal(op, {&op, reads, writes, {}, nullptr}),
              AllOf(HasSubstr("h.0.add"), HasSubstr("f64"), HasSubstr("f32, bf16 and f16")));
}

TEST(CudaLaunchTable, RefusesOperandsThatAreNotTheContracts) {
  const Tensor x{"x", DataType::f32, {4}, TensorKind::activation, {}};
  const Tensor mixed{"mixed", DataType::bf16, {4}, TensorKind::activation, {}};
  const Operand one[] = {{nullptr, &x}};
  const Operand two[] = {{nullptr, &x}, {nullptr, &mixed}};
  Op op;
  op.name = op.kernel = "add";
  EXPECT_THAT(refusal(op, {&op, one, one, {}, nullptr}), HasSubstr("wrong number of inputs"));
  EXPECT_THAT(refusal(op, {&op, two, one, {}, nullptr}), HasSubstr("'mixed'"));
}

}  // namespace
}  // namespace stowage
