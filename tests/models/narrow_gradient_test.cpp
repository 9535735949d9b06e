// The gradients of models in bf16 and f16 against those in f64 at the same weights.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "stowage/models.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

struct Trained {
  Trained(DataType type, const ModelFamily& family) : builder(type) {
    ModelConfig config{.layers = 2,
                       .width = 32,
                       .heads = 2,
                       .vocabulary = 31,
                       .sequence = 10,
                       .batch = 4,
                       .dropout = 0.1,
                       .epsilon = family.defaults.epsilon};
    if (&family == &qwen3_family) {
      config.key_heads = 1;
      config.head_norms = true;
    }
    loss = family.build(builder, config).loss;
    graph = builder.finish_without_update(loss);
  }

  GraphBuilder builder;
  Value loss;
  Graph graph;
};

// Weights of deviation 0.1: larger ones make scores so large that attention multiplies their rounding.
void prepare(const Graph& graph, Evaluator& evaluator) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::input)
      test::fill_tokens(evaluator, id, tensor.name == "tokens" || tensor.name == "targets" ? 31 : 2, id);
    if (tensor.kind == TensorKind::parameter) {
      Tensor wider = tensor;
      wider.initializer.standard_deviation = 0.1;
      initialize(wider, 5, evaluator.value(id));
    }
  }
}

std::vector<double> numbers_in(Evaluator& evaluator, TensorId id, DataType type) {
  std::vector<std::byte>& value = evaluator.value(id);
  std::vector<double> numbers;
  for (std::size_t i = 0; i < value.size() / size_of(type); ++i) {
    if (type == DataType::f64) numbers.push_back(test::elements_of<double>(value)[i]);
    if (type == DataType::bf16)
      numbers.push_back(static_cast<double>(static_cast<float>(test::elements_of<Bfloat16>(value)[i])));
    if (type == DataType::f16)
      numbers.push_back(static_cast<double>(static_cast<float>(test::elements_of<Float16>(value)[i])));
  }
  return numbers;
}

// A rounding is at most 2^-8 of a value in bf16, 2^-11 in f16, and half of that on average. Some twenty of
// them, of either sign, lie between a weight and the loss and back. The loss scale keeps f16 from what is
// denormal.
void expect_near_f64(DataType type, const ModelFamily& family) {
  constexpr double loss_scale = 1024;
  const double unit = type == DataType::bf16 ? 0x1p-8 : 0x1p-11;
  Trained narrow(type, family);
  Trained wide(DataType::f64, family);
  const LaunchTable table = cpu_launch_table();
  Evaluator in_narrow(narrow.graph, table, 5);
  Evaluator in_f64(wide.graph, table, 5);
  prepare(narrow.graph, in_narrow);
  prepare(wide.graph, in_f64);
  for (TensorId id = 0; id < wide.graph.tensors.size(); ++id) {
    if (wide.graph.tensor(id).kind != TensorKind::parameter) continue;
    ASSERT_EQ(narrow.graph.tensor(id).name, wide.graph.tensor(id).name);
    const std::vector<double> same = numbers_in(in_narrow, id, type);
    std::copy(same.begin(), same.end(), test::elements_of<double>(in_f64.value(id)));
  }
  in_narrow.run(0, 0, loss_scale);
  in_f64.run(0, 0);
  const double right = test::elements_of<double>(in_f64.value(wide.loss.id))[0];
  EXPECT_NEAR(test::elements_of<double>(in_narrow.value(narrow.loss.id))[0], right, 2.5 * unit * right);
  for (TensorId id = 0; id < wide.graph.tensors.size(); ++id) {
    if (wide.graph.tensor(id).kind != TensorKind::parameter) continue;
    const auto found = numbers_in(in_narrow, narrow.builder.gradient_of({id}), type);
    const auto expected = numbers_in(in_f64, wide.builder.gradient_of({id}), DataType::f64);
    ASSERT_EQ(found.size(), expected.size());
    double off = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      off += std::pow(found[i] / loss_scale - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_GT(size, 0) << wide.graph.tensor(id).name;
    EXPECT_LE(std::sqrt(off / size), 10 * unit) << wide.graph.tensor(id).name;
  }
}

class NarrowGradient : public ::testing::TestWithParam<DataType> {};

TEST_P(NarrowGradient, OfAGptIsNearThatInF64) { expect_near_f64(GetParam(), gpt_family); }

TEST_P(NarrowGradient, OfABertIsNearThatInF64) { expect_near_f64(GetParam(), bert_family); }

TEST_P(NarrowGradient, OfAQwen3IsNearThatInF64) { expect_near_f64(GetParam(), qwen3_family); }

INSTANTIATE_TEST_SUITE_P(Types, NarrowGradient, ::testing::Values(DataType::bf16, DataType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace stowage
