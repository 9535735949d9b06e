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

// Returns a loss: the sum of `x` with random weights. Its kernels are
// "weighted_sum" and "weighted_sum_backward".
Value weighted_sum(GraphBuilder& builder, Value x);
// Returns the CPU's kernels and the kernels of weighted_sum.
LaunchTable launch_table_with_weighted_sum();

// Fills an f64 tensor with standard normal draws, e.g. a tensor whose gradient is checked.
void fill_random(Evaluator& evaluator, TensorId tensor, std::uint32_t seed);
// Fills an i32 tensor with draws from [0, bound).
void fill_tokens(Evaluator& evaluator, TensorId tensor, std::int32_t bound, std::uint32_t seed);

struct DifferenceOptions {
  double step = 1e-3;          // absolute, as values are of order 1
  double tolerance = 1e-6;     // relative
  std::size_t most = 100'000;  // elements tried per tensor; larger tensors have a seeded sample
};

// Compares gradients with the five-point central difference of the loss. Each pair is a tensor and the tensor
// into which the graph computes its gradient. An element's error is relative to the larger of both values,
// but to no less than a thousandth of the tensor's largest value: below that, rounding of the loss dominates
// the difference. Fails if a tensor's whole gradient is zero.
void expect_gradients_match(Evaluator& evaluator, const std::vector<std::pair<TensorId, TensorId>>& gradients,
                            const DifferenceOptions& options = {});

// A builder of work type f64 that keeps the tensors to check and their inputs.
struct GradientCheck {
  GraphBuilder builder{DataType::f64};
  std::vector<Value> checked;
  std::vector<std::pair<Value, std::int32_t>> tokens;  // each with its bound

  // Returns a tensor that gets random values and whose gradient is checked.
  Value variable(const std::string& name, std::vector<std::int64_t> shape);
  // Returns an input that gets random integers in [0, bound).
  Value integers(const std::string& name, std::vector<std::int64_t> shape, std::int32_t bound);
  // Checks the gradients of the weighted sum of `y`.
  void run(Value y, const DifferenceOptions& options = {});
  // Checks the gradients of `loss`, after `prepare` has changed inputs.
  void run_loss(Value loss, const DifferenceOptions& options = {},
                const std::function<void(Evaluator&)>& prepare = nullptr);
};

}  // namespace stowage::test
