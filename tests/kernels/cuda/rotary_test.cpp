#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t tokens, sequence, heads, key_heads, width;
  std::int64_t columns() const { return (heads + 2 * key_heads) * width; }
};

class CudaRotary : public CudaKernelTest {
 protected:
  // The smallest head; an odd half; a half that is no power of two of packs; several heads for each group of
  // threads; a whole warp for each head.
  static constexpr Sizes all[] = {
      {1, 1, 1, 1, 2}, {4, 2, 3, 1, 6}, {2, 2, 4, 2, 80}, {2, 2, 30, 7, 128}, {2, 2, 5, 3, 512}};

  static TestOperand rows(const Sizes& sizes, unsigned seed) {
    return {Role::work, {sizes.tokens, sizes.columns()}, draws(sizes.tokens * sizes.columns(), seed, 2)};
  }
  static TestOperand gain(const Sizes& sizes, unsigned seed) {
    return {Role::work, {sizes.width}, draws(sizes.width, seed, 2)};
  }
  static TestOperand output(std::vector<std::int64_t> shape, Role role = Role::work) {
    return {role, std::move(shape), {}};
  }
  // The whole batch's, of which the op takes all but the first token's.
  static TestOperand begins(const Sizes& sizes) {
    return {Role::i32, {sizes.tokens + 1}, whole_draws(sizes.tokens + 1, 9, 3)};
  }
  static Attributes attributes(const Sizes& sizes) {
    return {{"heads", sizes.heads},
            {"key_heads", sizes.key_heads},
            {"sequence", sizes.sequence},
            {"theta", 100.0},
            {"epsilon", 1e-5},
            {"first_token", std::int64_t{1}}};
  }

  static KernelCase forward(const Sizes& sizes, bool normed) {
    KernelCase of{"rotary", attributes(sizes), {rows(sizes, 1)}, {output({sizes.tokens, sizes.columns()})}};
    if (!normed) return of;
    of.reads.insert(of.reads.end(), {gain(sizes, 2), gain(sizes, 3)});
    of.writes.push_back(output({sizes.tokens, sizes.heads + sizes.key_heads}, Role::sums));
    return of;
  }
  static KernelCase backward(const Sizes& sizes, bool normed) {
    KernelCase of{
        "rotary_backward", attributes(sizes), {rows(sizes, 4)}, {output({sizes.tokens, sizes.columns()})}};
    if (!normed) return of;
    const KernelCase before = forward(sizes, true);
    TestOperand rstd = before.writes[1];
    rstd.values = widened(run_cpu(before, DataType::f64, DataType::bf16)[1], DataType::f64);
    of.reads = {before.reads[0], before.reads[1], before.reads[2], rstd, of.reads[0]};
    of.writes.insert(of.writes.end(), 2, output({sizes.width}));
    return of;
  }
  void expect_cpu_bits(const KernelCase& of) {
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
      EXPECT_EQ(run_cuda(of, type), run_cpu(of, type, type)) << of.kernel << " in " << to_string(type);
  }
};

TEST_F(CudaRotary, TurnsHeads) {
  for (const Sizes& sizes : all) {
    KernelCase of = forward(sizes, false);
    expect_cpu_bits(of);
    of.reads.push_back(begins(sizes));
    of.attributes.insert({{"factor", 8.0},
                          {"low_frequency_factor", 1.0},
                          {"high_frequency_factor", 4.0},
                          {"original_positions", std::int64_t{100}}});
    expect_right(of, 3);
  }
}

TEST_F(CudaRotary, TurnsBackInPlaceToo) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes, false);
    expect_right_in(of, DataType::f32);
    of.in_place = {{0, 0}};
    expect_cpu_bits(of);
  }
}

TEST_F(CudaRotary, NormalisesHeads) {
  for (const Sizes& sizes : all) {
    KernelCase of = forward(sizes, true);
    expect_right(of);
    of.reads.push_back(begins(sizes));
    expect_right_in(of, DataType::bf16, 3);
  }
}

TEST_F(CudaRotary, GivesAllGradientsOfNorms) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes, true);
    expect_right(of);
    of.reads.push_back(begins(sizes));
    of.in_place = {{0, 4}};
    expect_right_in(of, DataType::bf16, 3);
    of.writes.resize(1);  // the gradients of the gains are left out
    expect_right_in(of, DataType::f32);
  }
}

// More than the most chunks of the least tokens.
TEST_F(CudaRotary, SumsTheGainsOverManyTokens) {
  expect_right_in(backward({600, 50, 1, 1, 6}, true), DataType::f32);
}

}  // namespace
}  // namespace stowage::test
