// What every CUDA kernel's test asks, on a card or over the fake runtime: agreement with the CPU's kernel in
// f64 on the same numbers, the same bits every time, and nothing written behind an output's end.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stowage/cuda_device.h"
#include "stowage/device.h"
#include "stowage/launch_table.h"

namespace stowage::test {

// What an operand's elements are in a run of work type T.
enum class Role : std::uint8_t {
  work,  // T
  sums,  // f32; f64 where T is f64
  f64,
  i32,
  i16,
  u8,
  bf16,
};

struct TestOperand {
  Role role = Role::work;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // of an input; of an output: what it holds before, or nothing
  // Of an output, relative to its largest element: 0 means what one rounding and a sum in f32 may cost.
  double tolerance = 0;
  // Of an output: what each element may be off, beside its own rounding. Stands in for the tolerance where it
  // allows more.
  std::vector<double> slack = {};
};

struct KernelCase {
  std::string kernel;
  Attributes attributes;
  std::vector<TestOperand> reads;
  std::vector<TestOperand> writes;
  // {write, read}: the output occupies the input's bytes.
  std::vector<std::pair<std::size_t, std::size_t>> in_place = {};
  StepContext step = {3, 0x123456789abcdefU, 1e-3};
};

using Output = std::vector<std::byte>;

class CudaKernelTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;  // skips with the reason where there is no card (over the fakes: fails)

  // Every output, as the kernel wrote it. `offset`: elements between the least aligned
  // address that a plan gives it and each operand.
  std::vector<Output> run_cuda(const KernelCase& of, DataType type, std::int64_t offset = 0);
  // As above by the CPU's kernels. `numbers`: the work type that the inputs are rounded to first.
  static std::vector<Output> run_cpu(const KernelCase& of, DataType type, DataType numbers);

  // In f32, bf16 and f16: two runs write the same bits, and these agree with the CPU's in f64. Element types
  // of outputs are floating.
  void expect_right(const KernelCase& of, std::int64_t offset = 0);
  void expect_right_in(const KernelCase& of, DataType type, std::int64_t offset = 0);

  // Instead of the suite's device, with other options.
  static void open(const CudaOptions& options) { device_ = open_cuda_device(options); }

 private:
  static std::unique_ptr<Device> device_;
};

// Uniform in [-range, range]: exact in bf16 where range is a power of two.
std::vector<double> draws(std::int64_t count, unsigned seed, double range = 1);
// In [0, limit), whole.
std::vector<double> whole_draws(std::int64_t count, unsigned seed, int limit);

// The elements of an output.
std::vector<double> widened(const Output& output, DataType type);

}  // namespace stowage::test
