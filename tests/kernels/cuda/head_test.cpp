#include <algorithm>
#include <cmath>

#include "stowage/error.h"
#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

// A block of a head: `rows` rows of its weight, from row `first` on.
struct Sizes {
  std::int64_t tokens, width, rows, first, vocabulary;
};

class CudaHead : public CudaKernelTest {
 protected:
  // One token; odd widths; the first, a middle and the last block, two of these with padding; rows longer
  // than a block of threads; more tokens than threads.
  static constexpr Sizes all[] = {{1, 1, 2, 0, 2},        {6, 8, 33, 0, 100},         {32, 16, 40, 40, 70},
                                  {13, 24, 65, 130, 200}, {5, 3, 5003, 5003, 10'000}, {1100, 7, 11, 22, 40}};
  static constexpr DataType types[] = {DataType::f32, DataType::bf16, DataType::f16};

  static std::vector<double> whole(std::int64_t count, unsigned seed, int range, double unit) {
    std::vector<double> values = whole_draws(count, seed, 2 * range + 1);
    for (double& value : values) value = (value - range) * unit;
    return values;
  }
  // Numbers of which every type holds the logits exactly, so that the statistics are of one rounding of f32.
  static TestOperand x(const Sizes& sizes) {
    return {Role::work, {sizes.tokens, sizes.width}, whole(sizes.tokens * sizes.width, 1, 1, 1)};
  }
  // Padding's logits, if they counted, would rule every sum.
  static TestOperand block(const Sizes& sizes) {
    std::vector<double> values = whole(sizes.rows * sizes.width, 2, 4, 0.125);
    const std::int64_t counted = std::min(sizes.rows, sizes.vocabulary - sizes.first);
    for (auto i = static_cast<std::size_t>(counted * sizes.width); i < values.size(); ++i) values[i] = 4;
    return {Role::work, {sizes.rows, sizes.width}, values};
  }
  // The whole batch's, of which the op takes all but the first's. Some are ignored; half of the others are
  // rows of this block, the last one that counts among them.
  static TestOperand targets(const Sizes& sizes) {
    std::vector<double> values = whole_draws(sizes.tokens + 1, 3, static_cast<int>(sizes.vocabulary));
    const std::int64_t last = std::min(sizes.first + sizes.rows, sizes.vocabulary) - 1;
    for (std::size_t i = 1; i < values.size(); i += 2)
      values[i] = static_cast<double>(std::max(last - static_cast<std::int64_t>(i / 2) % 64, sizes.first));
    for (std::size_t i = 3; i < values.size(); i += 4) values[i] = -1;
    return {Role::i32, {sizes.tokens + 1}, values};
  }
  static Attributes attributes(const Sizes& sizes) {
    return {{"first_row", sizes.first}, {"vocabulary", sizes.vocabulary}, {"first_token", std::int64_t{1}}};
  }
  // Each statistic of each token is held to f32 by itself.
  static TestOperand statistics_output(const Sizes& sizes) {
    return {Role::sums,
            {3, sizes.tokens},
            {},
            0,
            std::vector<double>(static_cast<std::size_t>(3 * sizes.tokens), 1e-9)};
  }
  static TestOperand logits(const Sizes& sizes) {
    return {Role::i32, {2 * sizes.tokens * sizes.rows}, {}};  // enough for the CPU's f64
  }

  static KernelCase statistics(const Sizes& sizes) {
    return {"head_statistics",
            attributes(sizes),
            {x(sizes), block(sizes), targets(sizes)},
            {statistics_output(sizes), logits(sizes)}};
  }
  // The statistics of blocks before are those of a block with other weights.
  static KernelCase statistics_after(const Sizes& sizes) {
    KernelCase of = statistics(sizes);
    KernelCase first = of;
    for (double& value : first.reads[1].values) value *= -0.5;
    first.attributes["first_row"] = std::int64_t{0};
    of.reads.push_back(given(first, 0));
    return of;
  }
  // An output of the CPU's kernel, as an operand of sums.
  static TestOperand given(const KernelCase& of, std::size_t output) {
    return {Role::sums, of.writes[output].shape,
            widened(run_cpu(of, DataType::f64, DataType::bf16)[output], DataType::f64)};
  }
  static KernelCase loss(const Sizes& sizes) {
    TestOperand of_all = given(statistics_after(sizes), 0);
    for (double& value : of_all.values) value = std::max(value, -1.0);  // as if a block had each target
    return {"head_loss",
            {{"first_token", std::int64_t{1}}},
            {of_all, targets(sizes)},
            {{Role::f64, {}, {}, 1e-6}}};
  }
  static KernelCase factors(const Sizes& sizes, double loss_scale) {
    KernelCase of = loss(sizes);
    of.kernel = "head_loss_backward";
    of.writes = {statistics_output(sizes)};
    of.step.loss_scale = loss_scale;
    return of;
  }
  // `before`: with the gradient of x that other blocks gave.
  static KernelCase backward(const Sizes& sizes, DataType type, bool before) {
    // Logits' gradients are rounded to the work type before they are multiplied.
    const double tolerance = type == DataType::f32 ? 0 : 0x1p-6;
    KernelCase of{"head_backward",
                  attributes(sizes),
                  {x(sizes), block(sizes), targets(sizes), given(factors(sizes, 1024), 0)},
                  {{Role::work, {sizes.tokens, sizes.width}, {}, tolerance},
                   {Role::work, {sizes.rows, sizes.width}, {}, tolerance},
                   logits(sizes)}};
    if (before)
      of.reads.push_back({Role::work, {sizes.tokens, sizes.width}, draws(sizes.tokens * sizes.width, 5, 16)});
    return of;
  }
};

TEST_F(CudaHead, GivesTheStatisticsOfTheFirstBlock) {
  for (const Sizes& sizes : all) expect_right(statistics(sizes));
}

TEST_F(CudaHead, AddsABlockToTheStatistics) {
  for (const Sizes& sizes : all) {
    KernelCase of = statistics_after(sizes);
    expect_right(of);
    of.in_place = {{0, 3}};
    expect_right(of);
  }
}

// A logit that is far above those of other blocks, or far below: neither overflows, and the smaller one is
// lost in f32.
TEST_F(CudaHead, TakesLogitsThatAreFarApart) {
  for (const double before : {-1000.0, 1000.0}) {
    KernelCase of = statistics({2, 3, 5, 5, 10});
    of.reads.push_back({Role::sums, {3, 2}, {before, before, 3, 3, before, before}});
    expect_right(of);
  }
}

TEST_F(CudaHead, GivesTheMeanLossAndItsFactors) {
  for (const Sizes& sizes : all) {
    expect_right_in(loss(sizes), DataType::f32);
    for (const double loss_scale : {1.0, 1024.0}) expect_right_in(factors(sizes, loss_scale), DataType::f32);
  }
}

TEST_F(CudaHead, GivesBothGradients) {
  for (const Sizes& sizes : all)
    for (const DataType type : types) expect_right_in(backward(sizes, type, false), type);
}

TEST_F(CudaHead, AddsToTheGradientThatOtherBlocksGave) {
  for (const Sizes& sizes : all) {
    for (const DataType type : types) {
      KernelCase of = backward(sizes, type, true);
      expect_right_in(of, type);
      const std::vector<Output> apart = run_cuda(of, type);
      of.in_place = {{0, 4}};
      const std::vector<Output> in_place = run_cuda(of, type);
      EXPECT_EQ(in_place[0], apart[0]);
      EXPECT_EQ(in_place[1], apart[1]);
    }
  }
}

TEST_F(CudaHead, WithoutTargetsLossAndGradientsAreZero) {
  const Sizes sizes{3, 7, 5, 0, 5};
  KernelCase first = statistics(sizes);
  std::fill(first.reads[2].values.begin(), first.reads[2].values.end(), -5);
  const TestOperand targets = first.reads[2];
  const TestOperand found{Role::sums, {3, 3}, widened(run_cuda(first, DataType::f32)[0], DataType::f32)};
  EXPECT_EQ(found.values, (std::vector<double>{0, 0, 0, 1, 1, 1, 0, 0, 0}));
  KernelCase of{"head_loss", {}, {found, {Role::i32, {3}, {-1, -1, -1}}}, {{Role::f64, {}, {}}}};
  EXPECT_EQ(widened(run_cuda(of, DataType::f32)[0], DataType::f64), std::vector<double>{0});
  of.kernel = "head_loss_backward";
  of.writes = {statistics_output(sizes)};
  const std::vector<double> factors = widened(run_cuda(of, DataType::f32)[0], DataType::f32);
  EXPECT_EQ(factors, std::vector<double>(9, 0));
  KernelCase gradients = backward(sizes, DataType::bf16, false);
  gradients.reads[2] = targets;
  gradients.reads[3].values = factors;
  const std::vector<Output> written = run_cuda(gradients, DataType::bf16);
  EXPECT_EQ(widened(written[0], DataType::bf16), std::vector<double>(21, 0));
  EXPECT_EQ(widened(written[1], DataType::bf16), std::vector<double>(35, 0));
}

// Targets are not on the host to be checked. No block has the second one, and so the loss is NaN.
TEST_F(CudaHead, ATargetThatNoBlockHasShows) {
  for (const bool outside : {false, true}) {
    KernelCase first = statistics({2, 3, 5, 0, 10});
    first.attributes.erase("first_token");
    first.reads[2] = {Role::i32, {2}, {1, outside ? 10.0 : 4.0}};
    KernelCase second = first;
    second.attributes["first_row"] = std::int64_t{5};
    for (const DataType type : types) {
      const std::vector<double> of_first = widened(run_cuda(first, type)[0], DataType::f32);
      second.reads.resize(3);
      second.reads.push_back({Role::sums, {3, 2}, of_first});
      const TestOperand found{Role::sums, {3, 2}, widened(run_cuda(second, type)[0], DataType::f32)};
      const KernelCase loss{"head_loss", {}, {found, first.reads[2]}, {{Role::f64, {}, {}}}};
      EXPECT_EQ(std::isnan(widened(run_cuda(loss, type)[0], DataType::f64)[0]), outside);
    }
  }
}

TEST_F(CudaHead, RefusesAWorkspaceThatIsTooSmall) {
  KernelCase forward = statistics({4, 8, 16, 0, 16});
  forward.writes[1].shape = {63};
  EXPECT_THROW(run_cuda(forward, DataType::f32), InvalidInput);
  KernelCase of = backward({4, 8, 16, 0, 16}, DataType::f32, false);
  of.writes[2].shape = {63};
  EXPECT_THROW(run_cuda(of, DataType::f32), InvalidInput);
}

}  // namespace
}  // namespace stowage::test
