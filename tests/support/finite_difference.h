// Judges the gradients of a graph of work type f64 by differences of its loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "stowage/evaluate.h"
#include "stowage/graph_builder.h"

namespace stowage::test {

template <class T>
T* elements_of(std::vector<std::byte>& value) {
  return reinterpret_cast<T*>(value.data());
}

// Adds `x` up with random weights into the loss: kernels "weighted_sum" and "weighted_sum_backward".
Value weighted_sum(GraphBuilder& builder, Value x);
// The CPU's kernels and these two.
LaunchTable launch_table_with_weighted_sum();

// Standard normal draws into an f64 tensor, e.g. one that gradients are taken of.
void fill_random(Evaluator& evaluator, TensorId tensor, std::uint32_t seed);
// Draws in [0, bound) into an i32 tensor.
void fill_tokens(Evaluator& evaluator, TensorId tensor, std::int32_t bound, std::uint32_t seed);

struct DifferenceOptions {
  double step = 1e-3;          // absolute, as values are of order 1
  double tolerance = 1e-6;     // relative
  std::size_t most = 100'000;  // elements tried per tensor, a seeded sample beyond it
};

// Compares the gradient that the graph computes of each pair's first tensor into its second with the
// five-point central difference of the loss. An element's error is relative to the larger of both
// values, but to no less than a thousandth of the tensor's largest: below it rounding of the loss
// dominates the difference. Fails where a tensor's gradient is zero altogether.
void expect_gradients_match(Evaluator& evaluator, const std::vector<std::pair<TensorId, TensorId>>& gradients,
                            const DifferenceOptions& options = {});

// A builder of work type f64 that keeps what is to be checked.
struct GradientCheck {
  GraphBuilder builder{DataType::f64};
  std::vector<Value> checked;
  std::vector<std::pair<Value, std::int32_t>> tokens;  // with their bound

  // A tensor that receives random values and whose gradient is checked.
  Value variable(const std::string& name, std::vector<std::int64_t> shape);
  // Random integers in [0, bound).
  Value integers(const std::string& name, std::vector<std::int64_t> shape, std::int32_t bound);
  // Checks the gradients of the weighted sum of `y`.
  void run(Value y, const DifferenceOptions& options = {});
  // … or of a loss, with the inputs that `prepare` changes.
  void run_loss(Value loss, const DifferenceOptions& options = {},
                const std::function<void(Evaluator&)>& prepare = nullptr);
};

}  // namespace stowage::test
