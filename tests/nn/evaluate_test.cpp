#include "stowage/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/parallel_for.h"
#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::Each;

Tensor weight(DataType type, std::vector<std::int64_t> shape, Initializer initializer,
              std::string name = "w") {
  return {std::move(name), type, std::move(shape), TensorKind::parameter, initializer};
}

template <class T>
std::vector<T> initialized(const Tensor& tensor, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  initialize(tensor, seed, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(Initialize, DeviationZeroIsTheMean) {
  EXPECT_THAT(initialized<float>(weight(DataType::f32, {7}, {1.5, 0}), 3), Each(1.5F));
  EXPECT_THAT(initialized<double>(weight(DataType::f64, {7}, {0, 0}), 3), Each(0.0));
}

TEST(Initialize, DrawsAreNormal) {
  auto values = initialized<double>(weight(DataType::f64, {200'001}, {3, 2}), 1);
  double sum = 0;
  double squares = 0;
  double cubes = 0;
  int beyond = 0;
  for (double value : values) {
    double normal = (value - 3) / 2;
    sum += normal;
    squares += normal * normal;
    cubes += normal * normal * normal;
    beyond += std::abs(normal) > 1.959964 ? 1 : 0;
  }
  auto count = static_cast<double>(values.size());
  double five_errors = 5 / std::sqrt(count);
  EXPECT_NEAR(sum / count, 0, five_errors);
  EXPECT_NEAR(squares / count, 1, five_errors * std::sqrt(2));
  EXPECT_NEAR(cubes / count, 0, five_errors * std::sqrt(15));
  EXPECT_NEAR(beyond / count, 0.05, five_errors * std::sqrt(0.05 * 0.95));
}

TEST(Initialize, NeighboursAreIndependent) {
  auto values = initialized<double>(weight(DataType::f64, {100'000}, {0, 1}), 1);
  for (std::size_t lag : {1U, 2U, 3U}) {
    double sum = 0;
    for (std::size_t i = lag; i < values.size(); ++i) sum += values[i] * values[i - lag];
    EXPECT_NEAR(sum / 100'000, 0, 5 / std::sqrt(100'000)) << lag;
  }
}

TEST(Initialize, SinglePrecisionRoundsTheDoubles) {
  auto doubles = initialized<double>(weight(DataType::f64, {9'001}, {0.1, 0.02}), 5);
  auto floats = initialized<float>(weight(DataType::f32, {9'001}, {0.1, 0.02}), 5);
  for (std::size_t i = 0; i < doubles.size(); ++i) ASSERT_EQ(floats[i], static_cast<float>(doubles[i]));
}

TEST(Initialize, DependsOnSeedAndNameAlone) {
  auto values = initialized<double>(weight(DataType::f64, {30, 40}, {0, 1}), 5);
  EXPECT_EQ(values, initialized<double>(weight(DataType::f64, {1200}, {0, 1}), 5));
  EXPECT_NE(values, initialized<double>(weight(DataType::f64, {30, 40}, {0, 1}), 6));
  EXPECT_NE(values, initialized<double>(weight(DataType::f64, {30, 40}, {0, 1}), 5 + (1ULL << 32U)));
  EXPECT_NE(values, initialized<double>(weight(DataType::f64, {30, 40}, {0, 1}, "v"), 5));
}

TEST(Initialize, GivesTheSameBitsForAnyThreadCount) {
  Tensor tensor = weight(DataType::f32, {100'003}, {0, 1});
  int before = parallel_threads();
  set_parallel_threads(1);
  auto one = initialized<float>(tensor, 5);
  set_parallel_threads(4);
  auto four = initialized<float>(tensor, 5);
  set_parallel_threads(before);
  EXPECT_EQ(one, four);
}

TEST(Initialize, RefusesWhatDoesNotFit) {
  std::vector<std::byte> bytes(12);
  test::expect_refused([&] { initialize(weight(DataType::f32, {2}, {}), 1, bytes); },
                       "'w': 12 bytes given; give 8");
  test::expect_refused([&] { initialize(weight(DataType::i32, {3}, {}), 1, bytes); }, "'w': it is i32");
}

struct Small {
  GraphBuilder builder{DataType::f64};
  Value x = builder.input("x", {4, 3}, DataType::f64);
  Value p = builder.parameter("p", {4, 3}, {2, 1});
  Value dropped = nn::dropout(builder, "dropped", nn::add(builder, "sum", x, p), 0.5);
  Graph graph = builder.finish(test::weighted_sum(builder, dropped), {});
  Evaluator evaluator{graph, test::launch_table_with_weighted_sum(), 9};

  std::vector<std::byte> bytes(Value value) { return evaluator.value(value.id); }
};

TEST(Evaluator, StartsFromInitializersAndZero) {
  Small small;
  for (TensorId id = 0; id < small.graph.tensors.size(); ++id) {
    const Tensor& tensor = small.graph.tensor(id);
    std::vector<std::byte> expected(tensor.bytes());
    if (tensor.kind == TensorKind::parameter) initialize(tensor, 9, expected);
    EXPECT_EQ(small.evaluator.value(id), expected) << tensor.name;
  }
}

TEST(Evaluator, RunsEveryOpInOrder) {
  Small small;
  test::fill_random(small.evaluator, small.x.id, 1);
  auto start = small.bytes(small.p);
  small.evaluator.run(0, 0);
  auto* x = test::elements_of<double>(small.evaluator.value(small.x.id));
  auto* p = test::elements_of<double>(small.evaluator.value(small.p.id));
  auto* dropped = test::elements_of<double>(small.evaluator.value(small.dropped.id));
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(dropped[i] == 0 || dropped[i] == 2 * (x[i] + p[i])) << i;
  EXPECT_EQ(small.bytes(small.p), start);  // at a learning rate of zero
}

TEST(Evaluator, PassesSeedStepAndLearningRate) {
  Small small;
  test::fill_random(small.evaluator, small.x.id, 1);
  auto start = small.bytes(small.p);
  small.evaluator.run(0, 0);
  auto first = small.bytes(small.dropped);
  small.evaluator.run(1, 0);
  EXPECT_NE(small.bytes(small.dropped), first);
  small.evaluator.run(0, 0);
  EXPECT_EQ(small.bytes(small.dropped), first);

  Evaluator other(small.graph, test::launch_table_with_weighted_sum(), 10);
  other.value(small.x.id) = small.bytes(small.x);
  other.value(small.p.id) = small.bytes(small.p);
  other.run(0, 0);
  EXPECT_NE(other.value(small.dropped.id), first);

  TensorId weights = test::tensor_named(small.graph, "loss.weights");
  test::fill_random(small.evaluator, weights, 2);
  small.evaluator.run(0, 0.1);
  EXPECT_NE(small.bytes(small.p), start);
}

TEST(Evaluator, RefusesAnOpWithoutKernel) {
  Small small;
  test::expect_refused([&] { Evaluator(small.graph, cpu_launch_table(), 1); }, "weighted_sum");
}

TEST(Evaluator, RefusesAGraphThatIsNone) {
  Small small;
  Graph graph = small.graph;
  graph.ops[0].reads[0] = 4000;
  test::expect_refused([&] { Evaluator(graph, test::launch_table_with_weighted_sum(), 1); }, "tensor 4000");
}

}  // namespace
}  // namespace stowage
