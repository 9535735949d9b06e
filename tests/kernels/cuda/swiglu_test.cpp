#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

class CudaSwiglu : public CudaKernelTest {
 protected:
  // Fewer than a pack, whole packs, a tail, more than a block.
  static constexpr std::int64_t counts[] = {1, 3, 8, 16, 37, 5003};

  static TestOperand input(std::int64_t count, unsigned seed, double range = 4) {
    return {Role::work, {1, count}, draws(count, seed, range)};
  }
  static TestOperand output(std::int64_t count) { return {Role::work, {1, count}, {}}; }

  static KernelCase forward(std::int64_t count) {
    return {"swiglu", {}, {input(count, 1, 8), input(count, 2)}, {output(count)}};
  }
  static KernelCase backward(std::int64_t count) {
    return {"swiglu_backward",
            {},
            {input(count, 1, 8), input(count, 2), input(count, 3)},
            {output(count), output(count)}};
  }
};

TEST_F(CudaSwiglu, GatesItsInput) {
  for (const std::int64_t count : counts) expect_right(forward(count));
}

TEST_F(CudaSwiglu, GivesBothGradientsInPlaceToo) {
  for (const std::int64_t count : counts) {
    KernelCase of = backward(count);
    expect_right(of);
    of.in_place = {{0, 2}};
    expect_right(of);
  }
}

TEST_F(CudaSwiglu, TakesAnyAddress) {
  for (const std::int64_t offset : {1, 3}) {
    expect_right(forward(29), offset);
    expect_right(backward(29), offset);
  }
}

// The largest gates that each type holds.
TEST_F(CudaSwiglu, IsFiniteForEveryFiniteGate) {
  for (const double largest : {65504.0, 0x1.fep127}) {
    KernelCase y = forward(4), gradient = backward(4);
    for (KernelCase* of : {&y, &gradient}) of->reads[0].values = {-largest, -90, 90, largest};
    for (KernelCase* of : {&y, &gradient}) of->reads[1].values = {largest, 1, 1, 1};
    gradient.reads[2].values = {1, 1, 1, 1};
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
      if (type == DataType::f16 && largest > 65504) continue;
      for (const KernelCase* of : {&y, &gradient})
        for (const Output& output : run_cuda(*of, type))
          for (const double value : widened(output, type))
            EXPECT_TRUE(std::isfinite(value)) << of->kernel << ' ' << to_string(type) << ' ' << value;
      EXPECT_EQ(widened(run_cuda(y, type)[0], type)[0], 0);
    }
  }
}

}  // namespace
}  // namespace stowage::test
