// The gradients of models in bf16 against those in f64 at the same weights.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/math/bfloat16.h"
#include "stowage/models.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

struct Trained {
  explicit Trained(DataType type, bool is_bert) : builder(type) {
    const auto config = [](auto of) {
      of.layers = 2;
      of.width = 32;
      of.heads = 2;
      of.vocabulary = 31;
      of.sequence = 10;
      of.batch = 4;
      of.dropout = 0.1;
      return of;
    };
    loss = is_bert ? bert(builder, config(BertConfig{})).loss : gpt(builder, config(GptConfig{})).loss;
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
    numbers.push_back(type == DataType::f64
                          ? test::elements_of<double>(value)[i]
                          : static_cast<double>(static_cast<float>(test::elements_of<Bfloat16>(value)[i])));
  }
  return numbers;
}

// A rounding is at most 2^-8 of a value, and half of that on average. Some twenty of them, of either sign,
// lie between a weight and the loss and back.
void expect_near_f64(bool is_bert) {
  Trained narrow(DataType::bf16, is_bert);
  Trained wide(DataType::f64, is_bert);
  const LaunchTable table = cpu_launch_table();
  Evaluator in_bf16(narrow.graph, table, 5);
  Evaluator in_f64(wide.graph, table, 5);
  prepare(narrow.graph, in_bf16);
  prepare(wide.graph, in_f64);
  for (TensorId id = 0; id < wide.graph.tensors.size(); ++id) {
    if (wide.graph.tensor(id).kind != TensorKind::parameter) continue;
    ASSERT_EQ(narrow.graph.tensor(id).name, wide.graph.tensor(id).name);
    const std::vector<double> same = numbers_in(in_bf16, id, DataType::bf16);
    std::copy(same.begin(), same.end(), test::elements_of<double>(in_f64.value(id)));
  }
  in_bf16.run(0, 0);
  in_f64.run(0, 0);
  const double right = test::elements_of<double>(in_f64.value(wide.loss.id))[0];
  EXPECT_NEAR(test::elements_of<double>(in_bf16.value(narrow.loss.id))[0], right, 0.01 * right);
  for (TensorId id = 0; id < wide.graph.tensors.size(); ++id) {
    if (wide.graph.tensor(id).kind != TensorKind::parameter) continue;
    const auto found = numbers_in(in_bf16, narrow.builder.gradient_of({id}), DataType::bf16);
    const auto expected = numbers_in(in_f64, wide.builder.gradient_of({id}), DataType::f64);
    ASSERT_EQ(found.size(), expected.size());
    double off = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      off += std::pow(found[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_GT(size, 0) << wide.graph.tensor(id).name;
    EXPECT_LE(std::sqrt(off / size), 10 * 0x1p-8) << wide.graph.tensor(id).name;
  }
}

TEST(Bf16Gradient, OfAGptIsNearThatInF64) { expect_near_f64(false); }

TEST(Bf16Gradient, OfABertIsNearThatInF64) { expect_near_f64(true); }

}  // namespace
}  // namespace stowage
