#include "tests/support/finite_difference.h"

#include <numeric>

namespace stowage::test {
namespace {

void run_weighted_sum(const LaunchArguments& arguments) {
  const auto* x = static_cast<const double*>(arguments.reads[0].data);
  const auto* weights = static_cast<const double*>(arguments.reads[1].data);
  double sum = 0;
  for (std::int64_t i = 0; i < arguments.reads[0].tensor->elements(); ++i) sum += x[i] * weights[i];
  *static_cast<double*>(arguments.writes[0].data) = sum;
}

void run_weighted_sum_backward(const LaunchArguments& arguments) {
  const auto* weights = static_cast<const double*>(arguments.reads[0].data);
  std::copy_n(weights, arguments.reads[0].tensor->elements(), static_cast<double*>(arguments.writes[0].data));
}

double loss_with(Evaluator& evaluator, double& element, double value) {
  element = value;
  evaluator.run(0, 0);
  return *elements_of<double>(evaluator.value(evaluator.graph().loss));
}

double difference(Evaluator& evaluator, double& element, double step) {
  double at = element;
  double near = loss_with(evaluator, element, at + step) - loss_with(evaluator, element, at - step);
  double far = loss_with(evaluator, element, at + 2 * step) - loss_with(evaluator, element, at - 2 * step);
  element = at;
  return (8 * near - far) / (12 * step);
}

std::vector<std::size_t> sample(std::size_t count, std::size_t most) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (count > most) {
    std::shuffle(indices.begin(), indices.end(), std::mt19937(7));
    indices.resize(most);
  }
  return indices;
}

void expect_gradient_matches(Evaluator& evaluator, TensorId of, const std::vector<double>& gradient,
                             const DifferenceOptions& options) {
  const std::string& name = evaluator.graph().tensor(of).name;
  double largest = 0;
  for (double value : gradient) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0) << "the gradient of " << name << " is zero";
  auto* elements = elements_of<double>(evaluator.value(of));
  for (std::size_t i : sample(gradient.size(), options.most)) {
    double numeric = difference(evaluator, elements[i], options.step);
    double scale = std::max({std::abs(gradient[i]), std::abs(numeric), 1e-3 * largest});
    EXPECT_LE(std::abs(gradient[i] - numeric), options.tolerance * scale)
        << name << "[" << i << "]: graph " << gradient[i] << ", difference " << numeric;
  }
}

}  // namespace

Value weighted_sum(GraphBuilder& builder, Value x) {
  Value weights = builder.input("loss.weights", builder.tensor(x).shape, DataType::f64);
  Value loss = builder.activation("loss", {}, DataType::f64);
  auto backward = [=](GraphBuilder& b, const std::vector<Value>&) {
    Value dx = b.gradient_like(x);
    b.op({"loss.backward", "weighted_sum_backward", {}, {weights}, {dx}, {}, {}});
    b.add_gradient(x, dx, true);
  };
  builder.op({"loss", "weighted_sum", {}, {x, weights}, {loss}, {}, {}}, backward);
  return loss;
}

LaunchTable launch_table_with_weighted_sum() {
  LaunchTable table = cpu_launch_table();
  table.add("weighted_sum", run_weighted_sum);
  table.add("weighted_sum_backward", run_weighted_sum_backward);
  return table;
}

void fill_random(Evaluator& evaluator, TensorId tensor, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  auto* elements = elements_of<double>(evaluator.value(tensor));
  for (std::int64_t i = 0; i < evaluator.graph().tensor(tensor).elements(); ++i) elements[i] = normal(random);
}

void fill_tokens(Evaluator& evaluator, TensorId tensor, std::int32_t bound, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int32_t> below(0, bound - 1);
  auto* elements = elements_of<std::int32_t>(evaluator.value(tensor));
  for (std::int64_t i = 0; i < evaluator.graph().tensor(tensor).elements(); ++i) elements[i] = below(random);
}

void expect_gradients_match(Evaluator& evaluator, const std::vector<std::pair<TensorId, TensorId>>& gradients,
                            const DifferenceOptions& options) {
  evaluator.run(0, 0);
  std::vector<std::vector<double>> computed;
  for (auto [of, gradient] : gradients) {
    ASSERT_NE(gradient, no_id) << "no gradient of " << evaluator.graph().tensor(of).name;
    auto* elements = elements_of<double>(evaluator.value(gradient));
    computed.emplace_back(elements, elements + evaluator.graph().tensor(gradient).elements());
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    expect_gradient_matches(evaluator, gradients[i].first, computed[i], options);
  }
}

Value GradientCheck::variable(const std::string& name, std::vector<std::int64_t> shape) {
  checked.push_back(builder.parameter(name, std::move(shape), {0, 1}));
  return checked.back();
}

Value GradientCheck::integers(const std::string& name, std::vector<std::int64_t> shape, std::int32_t bound) {
  tokens.emplace_back(builder.input(name, std::move(shape)), bound);
  return tokens.back().first;
}

void GradientCheck::run(Value y, const DifferenceOptions& options) {
  run_loss(weighted_sum(builder, y), options);
}

void GradientCheck::run_loss(Value loss, const DifferenceOptions& options,
                             const std::function<void(Evaluator&)>& prepare) {
  Graph graph = builder.finish_without_update(loss);
  Evaluator evaluator(graph, launch_table_with_weighted_sum(), 5);
  std::uint32_t seed = 11;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::input && tensor.type == DataType::f64) fill_random(evaluator, id, seed++);
  }
  for (auto [value, bound] : tokens) fill_tokens(evaluator, value.id, bound, seed++);
  if (prepare) prepare(evaluator);
  std::vector<std::pair<TensorId, TensorId>> gradients;
  for (Value value : checked) gradients.emplace_back(value.id, builder.gradient_of(value));
  expect_gradients_match(evaluator, gradients, options);
}

}  // namespace stowage::test
