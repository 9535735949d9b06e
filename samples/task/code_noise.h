// How far coded activations (coded_activations.h) are from the exact ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "stowage/graph.h"

namespace stowage::samples {

// The error of one coded tensor.
struct CodeNoise {
  std::string tensor;
  // 10 log10 of the sum of squares over that of the errors: infinite without an error, NaN if values are not
  // finite.
  double decibels = 0;
  double largest_error = 0;  // of an element; NaN if values are not finite
};

// Tokens of the sample that are looked at: the CPU computes their forward pass.
inline constexpr std::int64_t most_noise_tokens = 512;

// Returns the noise of every tensor that the training step codes, of the first micro-batch, in forward order,
// for the first tokens of the first sample of a step's inputs (Task::inputs). The CPU computes them in f32
// and without dropout; they are rounded to the type of the run, then coded and decoded. `training`: the step
// of one device. Reads a parameter at a time, and takes the memory of that and of the tokens' activations.
std::vector<CodeNoise> code_noise(const Graph& training, const Options& options,
                                  const std::vector<std::span<const std::int32_t>>& inputs,
                                  const ReadParameter& read);

}  // namespace stowage::samples
